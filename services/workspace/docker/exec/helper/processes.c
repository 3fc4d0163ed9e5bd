#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STAT_TEXT = 1024, STOP_ROUNDS = 20, ROUND_NANOSECONDS = 1000 * 1000 };

void end_if_blind(void) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        _exit(BLIND_STATUS);
}

size_t read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t count;
    if (fd < 0)
        end_if_blind();
    while (fd >= 0 && (count = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)count;
    if (fd >= 0)
        close(fd);
    text[length] = 0;
    return length;
}

bool process_read(pid_t pid, struct process_state *state) {
    char path[64], text[STAT_TEXT];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_text(path, text, sizeof text) == 0)
        return false;
    /* The name may contain everything, also brackets. */
    char *open = strchr(text, '('), *shut = strrchr(text, ')');
    if (open == NULL || shut == NULL)
        return false;
    *shut = 0;
    snprintf(state->name, sizeof state->name, "%s", open + 1);
    return sscanf(shut + 2, "%c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
                  &state->state, &state->parent, &state->threads, &state->start) == 4;
}

static int compare(const void *left, const void *right) {
    const struct process *a = left, *b = right;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

bool process_set_has(const struct process_set *set, struct process process) {
    return set->count && bsearch(&process, set->items, set->count, sizeof process, compare);
}

void process_set_clear(struct process_set *set) {
    free(set->items);
    memset(set, 0, sizeof *set);
}

static void append(struct process_set *set, struct process process) {
    if (set->count == set->size) {
        set->size = set->size ? 2 * set->size : 64;
        set->items = realloc(set->items, set->size * sizeof process);
        if (set->items == NULL)
            _exit(BLIND_STATUS);
    }
    set->items[set->count++] = process;
}

static bool is_listed(const struct process_set *list, struct process process) {
    for (size_t index = 0; index < list->count; index++)
        if (compare(&list->items[index], &process) == 0)
            return true;
    return false;
}

void process_set_add(struct process_set *set, struct process process) {
    if (!is_listed(set, process))
        append(set, process);
}

static void list_one(pid_t pid, void *data) {
    struct process_state state;
    if (process_read(pid, &state))
        process_set_add(data, (struct process){pid, state.start});
}

/* Also those that are dead by now. */
static void list_descendants(struct process_set *list, pid_t root) {
    size_t before;
    do {
        before = list->count;
        each_child(root, list_one, list);
        for (size_t index = before; index < list->count; index++)
            each_child(list->items[index].pid, list_one, list);
    } while (list->count > before);
}

static bool is_there(struct process process, struct process_state *state) {
    return process_read(process.pid, state) && state->start == process.start;
}

/* One whose first thread has ended looks dead, and goes on with the others. */
static bool is_dead(struct process process) {
    struct process_state state;
    return !is_there(process, &state) || (strchr("ZX", state.state) && state.threads < 2);
}

void add_descendants(struct process_set *set) {
    struct process_set list = {0};
    list_descendants(&list, getpid());
    for (size_t index = 0; index < list.count; index++)
        if (!is_dead(list.items[index]))
            process_set_add(set, list.items[index]);
    process_set_clear(&list);
    if (set->count)
        qsort(set->items, set->count, sizeof *set->items, compare);
}

static void signal_exactly(struct process process, int number) {
    /* The descriptor pins what has the number before it is compared. Some sandboxes do not know it. */
    int fd = (int)syscall(SYS_pidfd_open, process.pid, 0);
    if (!is_dead(process)) {
        if (fd < 0 || (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0 && errno != ESRCH))
            kill(process.pid, number);
    }
    if (fd >= 0)
        close(fd);
}

void kill_exactly(struct process process) {
    signal_exactly(process, SIGKILL);
}

static void each_number(const char *path, void (*visit)(pid_t, void *), void *data) {
    FILE *file = fopen(path, "re");
    int pid;
    if (file == NULL) {
        end_if_blind();
        return;
    }
    while (fscanf(file, "%d", &pid) == 1)
        visit(pid, data);
    fclose(file);
}

void each_child(pid_t parent, void (*visit)(pid_t, void *), void *data) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", parent);
    DIR *tasks = opendir(path);
    struct dirent *task;
    if (tasks == NULL)
        end_if_blind();
    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.12s/children", parent, task->d_name);
        each_number(path, visit, data);
    }
    if (tasks != NULL)
        closedir(tasks);
}

/* Whether one of them ran. */
static bool stop_all(const struct process_set *list) {
    bool ran = false;
    for (size_t index = 0; index < list->count; index++) {
        struct process_state state;
        if (!is_there(list->items[index], &state) || strchr("Tt", state.state) || is_dead(list->items[index]))
            continue;
        /* What only looks dead looks so for ever. */
        ran |= !strchr("ZX", state.state);
        signal_exactly(list->items[index], SIGSTOP);
    }
    return ran;
}

bool kill_below(pid_t root) {
    struct process_set list = {0};
    for (int round = 0; round < STOP_ROUNDS; round++) {
        process_set_clear(&list);
        list_descendants(&list, root);
        if (!stop_all(&list))
            break;
        nanosleep(&(struct timespec){0, ROUND_NANOSECONDS}, NULL);
    }
    bool found = list.count > 0;
    for (size_t index = 0; index < list.count; index++)
        kill_exactly(list.items[index]);
    process_set_clear(&list);
    return found;
}
