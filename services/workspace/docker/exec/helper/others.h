/*
 * Other helpers in this container, told apart by the marker in their arguments.
 *
 * They may be of another version: the container's first process stays what it was started from, and so
 * do execs that run. How a helper is called (`run MARKER`), what a marker looks like and the name in
 * which it shows its time are what versions know of each other; PROTOCOL_VERSION says nothing of that, so
 * these never change.
 */
#ifndef MOORAGE_OTHERS_H
#define MOORAGE_OTHERS_H

#include <stdbool.h>

/*
 * A marker is DEPLOYMENT/INSTANCE/START/EXEC. `others_end` kills the helpers whose marker begins with
 * `prefix` but not with `spared` (empty: none is spared), and all that has fallen to the container's
 * first process, until nothing of it is left. False when that takes too long.
 */
bool others_end(const char *prefix, const char *spared);

/* End what earlier starts of the marker's own instance have left. */
bool others_end_predecessors(const char *marker);

/* A helper shows until when it may live in its name, since nobody in the container can change it. */
void others_show_until(unsigned long seconds);

/* In the first process: kill helpers that have outlived what they show. */
void others_end_overdue(unsigned long now);

#endif
