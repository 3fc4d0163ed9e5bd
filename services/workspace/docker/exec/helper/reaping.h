/* Killing what came into being below the command since a mark, and nothing else. */
#ifndef MOORAGE_REAPING_H
#define MOORAGE_REAPING_H

#include <stdbool.h>
#include <stddef.h>

#include "processes.h"

struct reaping {
    struct process_set older, killed;
    bool active;
};

/* Draw the line; how many processes are older. */
size_t reaping_mark(struct reaping *reaping);

/* From now on reaping_step has to be called again and again, until it says that nothing younger lives. */
void reaping_begin(struct reaping *reaping);
bool reaping_step(struct reaping *reaping);

#endif
