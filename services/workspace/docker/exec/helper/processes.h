/*
 * The processes below this one, by the kernel's lists.
 *
 * A command may lower what this process may have open or allocate, as it is of the same user. Who cannot
 * look any more ends at once with BLIND_STATUS: what a helper leaves falls to the container's first
 * process, and with that one the kernel ends the container.
 */
#ifndef MOORAGE_PROCESSES_H
#define MOORAGE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A process's number with its start time: no other process ever has both. */
struct process {
    pid_t pid;
    unsigned long long start;
};

struct process_set {
    struct process *items;
    size_t count, size;
};

enum { BLIND_STATUS = 70 };

/* What /proc/PID/stat says; false when it is gone. `name` has room for 16 bytes. */
struct process_state {
    char name[16];
    char state;
    pid_t parent;
    int threads;
    unsigned long long start;
};
bool process_read(pid_t pid, struct process_state *state);

/* Read a small file of the kernel as text; its length, 0 when it cannot be read. */
size_t read_text(const char *path, char *text, size_t size);

/* To be called where something of the kernel could not be opened; what is gone meanwhile is no reason. */
void end_if_blind(void);

/* Whether it is in a set that add_descendants made. */
bool process_set_has(const struct process_set *set, struct process process);
/* Unless it is in there. */
void process_set_add(struct process_set *set, struct process process);
void process_set_clear(struct process_set *set);

/* Add all living processes below this one. What loses its parent meanwhile becomes its child, and is found. */
void add_descendants(struct process_set *set);

/* Kill this very process, nobody who got its number after it. */
void kill_exactly(struct process process);

/* Call `visit` for each direct child of a process; they keep their numbers until their parent reaps them. */
void each_child(pid_t parent, void (*visit)(pid_t child, void *data), void *data);

/*
 * Kill all processes below that one; whether there were any, dead ones that nobody has collected included.
 * They are stopped before, until none runs: under a limit of processes each that is killed makes room for
 * another one, and a stopped one does not.
 */
bool kill_below(pid_t root);

#endif
