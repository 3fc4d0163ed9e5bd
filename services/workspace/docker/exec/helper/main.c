/*
 * The program that Moorage puts into every container that it makes:
 *   exec init            the container's first process
 *   exec run MARKER      one exec, told by the instance on standard input what to do (protocol.h)
 *   exec end PREFIX      ends the execs whose markers begin so; 0 when nothing of them is left
 *   exec place PATH      tells which directory that is
 */
#include <stdio.h>
#include <string.h>

#include "exec.h"
#include "first.h"
#include "others.h"
#include "place.h"

enum { DONE = 0, LEFT_OVER = 1, UNKNOWN = 1, USAGE = 2 };

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    if (count == 2 && strcmp(mode, "init") == 0)
        return first_run();
    if (count == 3 && strcmp(mode, "run") == 0)
        return exec_run(arguments[2]);
    if (count == 3 && strcmp(mode, "end") == 0)
        return others_end(arguments[2], "") ? DONE : LEFT_OVER;
    if (count == 3 && strcmp(mode, "place") == 0)
        return place_tell(arguments[2]) ? DONE : UNKNOWN;
    fputs("usage: exec init | exec run MARKER | exec end PREFIX | exec place PATH\n", stderr);
    return USAGE;
}
