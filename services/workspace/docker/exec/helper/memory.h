/* How often the kernel killed a process of this container because its memory was used up. */
#ifndef MOORAGE_MEMORY_H
#define MOORAGE_MEMORY_H

/* The counter of control groups version 2 or 1; 0 where there is none. */
unsigned long memory_kills(void);

/* In a process that becomes a command: be killed for want of memory before a helper is. */
void memory_go_first(void);

#endif
