/* One exec: a command, from HELLO to the death of everything that it started. */
#ifndef MOORAGE_EXEC_H
#define MOORAGE_EXEC_H

/* Speaks the protocol on standard input and output; `marker` is DEPLOYMENT/INSTANCE/START/EXEC. */
int exec_run(const char *marker);

#endif
