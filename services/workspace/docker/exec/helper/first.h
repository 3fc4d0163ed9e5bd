/* The container's first process. */
#ifndef MOORAGE_FIRST_H
#define MOORAGE_FIRST_H

/* Reaps and kills what dead helpers leave, until SIGTERM from outside the container. */
int first_run(void);

#endif
