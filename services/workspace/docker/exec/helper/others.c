#include "others.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "processes.h"

enum {
    LONGEST_ARGUMENTS = 1024,
    PAUSE_MILLISECONDS = 5,
    LONGEST_WAIT = 2000,
    CLEAN_LOOKS = 2,
    /* A helper that is late by less is busy with killing. */
    OVERDUE_SECONDS = 1,
};

static const char shown[] = "until %08lx";

struct search {
    const char *prefix, *spared;
    bool in_container, found;
};

/* A helper is what the engine has put into the container: it has no parent here. */
static bool is_guest(pid_t pid, struct process_state *state) {
    return pid != 1 && pid != getpid() && process_read(pid, state) && state->parent == 0 &&
           !strchr("ZX", state->state);
}

/* The second and third argument: "run" and the marker. */
static const char *marker_of(pid_t pid, char text[LONGEST_ARGUMENTS]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    size_t length = read_text(path, text, LONGEST_ARGUMENTS);
    char *mode = text + strlen(text) + 1, *marker = mode < text + length ? mode + strlen(mode) + 1 : mode;
    return marker < text + length && strcmp(mode, "run") == 0 ? marker : NULL;
}

static bool begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void end_if_wanted(pid_t pid, void *data) {
    struct search *search = data;
    struct process_state state;
    char text[LONGEST_ARGUMENTS];
    if (!is_guest(pid, &state))
        return;
    const char *marker = marker_of(pid, text);
    /* It is going, and what it ran has not fallen to the first process yet. */
    search->found |= search->in_container && text[0] == 0;
    if (marker == NULL || !begins(marker, search->prefix))
        return;
    if (search->spared[0] && begins(marker, search->spared))
        return;
    search->found = true;
    kill_exactly((struct process){pid, state.start});
}

static void end_if_overdue(pid_t pid, void *data) {
    struct process_state state;
    unsigned long until;
    if (is_guest(pid, &state) && sscanf(state.name, shown, &until) == 1 &&
        *(unsigned long *)data > until + OVERDUE_SECONDS)
        kill_exactly((struct process){pid, state.start});
}

static void each_process(void (*visit)(pid_t, void *), void *data) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    if (all == NULL)
        end_if_blind();
    while (all != NULL && (entry = readdir(all)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            visit((pid_t)atoi(entry->d_name), data);
    if (all != NULL)
        closedir(all);
}

/*
 * Whether the first process is one that starts nothing: what is below it is what helpers have left, whoever
 * has ended the helpers. Outside of a container nothing like that can be said of anybody.
 */
static bool is_in_container(void) {
    char text[LONGEST_ARGUMENTS];
    size_t length = read_text("/proc/1/cmdline", text, sizeof text);
    char *mode = text + strlen(text) + 1;
    return getppid() == 0 && mode < text + length && strcmp(mode, "init") == 0;
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_briefly(void) {
    nanosleep(&(struct timespec){0, PAUSE_MILLISECONDS * 1000000L}, NULL);
}

bool others_end(const char *prefix, const char *spared) {
    bool killed = false, in_container = is_in_container();
    long late = milliseconds() + LONGEST_WAIT;
    for (int clean = 0; clean < CLEAN_LOOKS;) {
        struct search search = {prefix, spared, in_container, false};
        each_process(end_if_wanted, &search);
        search.found |= in_container && kill_below(1);
        killed |= search.found;
        clean = search.found ? 0 : clean + 1;
        if (!killed)
            return true;
        if (milliseconds() > late)
            return false;
        pause_briefly();
    }
    return true;
}

bool others_end_predecessors(const char *marker) {
    char start[LONGEST_ARGUMENTS], instance[LONGEST_ARGUMENTS];
    snprintf(start, sizeof start, "%s", marker);
    char *end = strrchr(start, '/');
    if (end == NULL)
        return false;
    end[1] = 0;
    snprintf(instance, sizeof instance, "%.*s", (int)(end - start), start);
    if ((end = strrchr(instance, '/')) == NULL)
        return false;
    end[1] = 0;
    return others_end(instance, start);
}

void others_show_until(unsigned long seconds) {
    char name[16];
    snprintf(name, sizeof name, shown, seconds);
    prctl(PR_SET_NAME, name);
}

void others_end_overdue(unsigned long now) {
    each_process(end_if_overdue, &now);
}
