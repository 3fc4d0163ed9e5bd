#include "first.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "others.h"
#include "processes.h"

enum { USUAL_SECONDS = 1, QUICK_NANOSECONDS = 10 * 1000 * 1000 };

static void reap_all(void) {
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

int first_run(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const struct timespec usual = {USUAL_SECONDS, 0}, quick = {0, QUICK_NANOSECONDS};
    bool busy = false;
    for (;;) {
        siginfo_t from;
        int number = sigtimedwait(&signals, &from, busy ? &quick : &usual);
        /* Who is outside of the container has no number in it. */
        if ((number == SIGTERM || number == SIGINT) && from.si_pid == 0)
            return 0;
        struct timespec now;
        clock_gettime(CLOCK_BOOTTIME, &now);
        others_end_overdue((unsigned long)now.tv_sec);
        /* It starts nothing: a child of it is what a helper has left that did not live to kill it. */
        busy = kill_below(getpid());
        reap_all();
    }
}
