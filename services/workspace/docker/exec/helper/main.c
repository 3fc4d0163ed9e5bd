/*
 * The program that every container that Moorage makes has:
 *   exec init            the container's first process
 *   exec run MARKER      one exec, told by the instance on standard input what to do (protocol.h)
 *   exec end PREFIX      ends the execs whose markers begin so; 0 when nothing of them is left
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "exec.h"
#include "first.h"
#include "others.h"

enum { DONE = 0, LEFT_OVER = 1, USAGE = 2 };

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    /* Commands are of the same user: they cannot look into this process, nor change its name. */
    prctl(PR_SET_DUMPABLE, 0);
    if (count == 2 && strcmp(mode, "init") == 0)
        return first_run();
    if (count == 3 && strcmp(mode, "run") == 0)
        return exec_run(arguments[2]);
    if (count == 3 && strcmp(mode, "end") == 0)
        return others_end(arguments[2], "") ? DONE : LEFT_OVER;
    fputs("usage: exec init | exec run MARKER | exec end PREFIX\n", stderr);
    return USAGE;
}
