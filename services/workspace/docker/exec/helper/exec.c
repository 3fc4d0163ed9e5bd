#include "exec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "link.h"
#include "memory.h"
#include "others.h"
#include "place.h"
#include "processes.h"
#include "protocol.h"
#include "reaping.h"
#include "streams.h"

enum {
    NANOSECONDS = 1000000000,
    /* From the start of the helper until it must have been told what to run. */
    START_SECONDS = 60,
    LOOK_AGAIN_MILLISECONDS = 10,
    READY_LENGTH = 28,
};

enum stage { WAITING, STARTING, RUNNING, ENDING, DRAINING, DONE };

struct exec {
    struct link link;
    struct streams streams;
    struct command command;
    struct reaping reaping;
    unsigned reaps; /* questions that its end answers */
    enum stage stage;
    const char *marker;
    bool killed; /* it was to be killed while the command ran */
    bool stirred; /* a child has died since they were looked at */
    bool buried; /* the command is collected, and its number may be somebody else's */
    int status;
    unsigned long memory_kills;
    uint64_t until;
    int children, timer;
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (uint64_t)time.tv_sec * NANOSECONDS + (uint64_t)time.tv_nsec;
}

static void set_until(struct exec *exec, uint64_t until) {
    if (until <= exec->until)
        return;
    exec->until = until;
    struct itimerspec at = {.it_value = {(time_t)(until / NANOSECONDS), (long)(until % NANOSECONDS)}};
    timerfd_settime(exec->timer, TFD_TIMER_ABSTIME, &at, NULL);
    others_show_until((unsigned long)(until / NANOSECONDS));
}

static void give_up(struct exec *exec, int cause) {
    link_say_u32(&exec->link, FAILED, (uint32_t)cause);
    exec->stage = DONE;
}

static void greet(struct exec *exec, const struct frame *frame) {
    struct place place = place_of(frame->payload + 4, frame->length - 4);
    unsigned char *ready;
    if (!others_end_predecessors(exec->marker)) {
        give_up(exec, EBUSY);
        return;
    }
    ready = link_begin(&exec->link, READY_LENGTH);
    put_u32(ready, PROTOCOL_VERSION);
    put_u64(ready + 4, now());
    put_u64(ready + 12, place.device);
    put_u64(ready + 20, place.inode);
    link_finish(&exec->link, READY, READY_LENGTH);
}

static void start(struct exec *exec, const struct frame *frame) {
    struct request request;
    if (!request_read(&request, frame->payload, frame->length)) {
        exec->link.ended = true;
        return;
    }
    /* Until now it had the time to be told what to run. */
    exec->until = 0;
    set_until(exec, request.until);
    exec->memory_kills = memory_kills();
    int error = exec->until > now() ? command_start(&exec->command, &request) : ETIME;
    if (error) {
        give_up(exec, error);
    } else {
        streams_open(&exec->streams, &exec->link, &exec->command, request.window, request.terminal);
        exec->stage = STARTING;
    }
    free(request.memory);
}

static void kill_all(struct exec *exec) {
    if (exec->stage == WAITING)
        give_up(exec, ECANCELED);
    if (exec->stage == STARTING || exec->stage == RUNNING) {
        exec->killed = true;
        exec->stage = ENDING;
        kill(-exec->command.pid, SIGKILL);
        kill(exec->command.pid, SIGKILL);
    }
}

static void send_signal(struct exec *exec, int number) {
    if (exec->stage == RUNNING)
        kill(-exec->command.pid, number);
}

static void mark(struct exec *exec) {
    link_say_u32(&exec->link, MARKED, (uint32_t)reaping_mark(&exec->reaping));
}

static bool is_long_enough(const struct frame *frame) {
    switch (frame->type) {
    case HELLO: case RESIZE: case SIGNAL: case READ:
        return frame->length >= 4;
    case UNTIL:
        return frame->length >= 8;
    default:
        return true;
    }
}

static bool obey_running(struct exec *exec, const struct frame *frame) {
    switch (frame->type) {
    case STDIN:
        return streams_take(&exec->streams, frame->payload, frame->length);
    case CLOSE:
        streams_close_input(&exec->streams);
        return true;
    case RESIZE:
        command_resize(&exec->command, get_u16(frame->payload), get_u16(frame->payload + 2));
        return true;
    case SIGNAL:
        send_signal(exec, (int)get_u32(frame->payload));
        return true;
    case MARK:
        mark(exec);
        return true;
    case REAP:
        exec->reaps++;
        reaping_begin(&exec->reaping);
        return true;
    default:
        return false;
    }
}

/* False when the frame makes no sense now. */
static bool obey(struct exec *exec, const struct frame *frame) {
    if (!is_long_enough(frame))
        return false;
    switch (frame->type) {
    case KILL:
        kill_all(exec);
        return true;
    case UNTIL:
        set_until(exec, get_u64(frame->payload));
        return true;
    case READ:
        exec->streams.unread += get_u32(frame->payload);
        return true;
    case HELLO:
        greet(exec, frame);
        return get_u32(frame->payload) == PROTOCOL_VERSION;
    case START:
        if (exec->stage == WAITING)
            start(exec, frame);
        return true;
    default:
        /* What comes too late has no effect. */
        return exec->stage > RUNNING || (exec->stage != WAITING && obey_running(exec, frame));
    }
}

static void listen_to_instance(struct exec *exec) {
    struct frame frame;
    link_receive(&exec->link);
    while (exec->stage != DONE && link_next(&exec->link, &frame))
        if (!obey(exec, &frame))
            exec->link.ended = true;
}

/* Whether the program runs, as far as is known. */
static void look_at_start(struct exec *exec) {
    int cause = 0;
    ssize_t count = read(exec->command.failure, &cause, sizeof cause);
    if (count < 0)
        return;
    close(exec->command.failure);
    exec->command.failure = -1;
    if (count == 0) {
        link_say_u32(&exec->link, STARTED, (uint32_t)exec->command.pid);
        exec->stage = exec->stage == STARTING ? RUNNING : exec->stage;
    } else {
        waitpid(exec->command.pid, NULL, 0);
        give_up(exec, cause);
    }
}

/* Collect dead children but the command, whose number must stay its own; whether that one is dead. */
static bool collect(pid_t command) {
    siginfo_t child = {0};
    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0) {
        if (child.si_pid == command)
            return true;
        waitpid(child.si_pid, NULL, 0);
        child.si_pid = 0;
    }
    return false;
}

static void report_death(struct exec *exec) {
    unsigned char *dead = link_begin(&exec->link, 6);
    put_u32(dead, (uint32_t)exec->status);
    dead[4] = exec->killed;
    dead[5] = memory_kills() > exec->memory_kills;
    link_finish(&exec->link, DEAD, 6);
    exec->stage = DRAINING;
}

static void bury_command(struct exec *exec) {
    kill(-exec->command.pid, SIGKILL);
    waitpid(exec->command.pid, &exec->status, 0);
    exec->buried = true;
    if (exec->command.failure >= 0)
        look_at_start(exec);
}

/* Kill until the kernel says that no child is left. */
static void bury(struct exec *exec) {
    if (!exec->buried && collect(exec->command.pid))
        bury_command(exec);
    kill_below(getpid());
    if (exec->stage == ENDING && exec->buried && (collect(0), waitpid(-1, NULL, WNOHANG) < 0))
        report_death(exec);
}

static void look_after_processes(struct exec *exec) {
    if (exec->stage == STARTING)
        look_at_start(exec);
    if (exec->stage == RUNNING && exec->stirred && collect(exec->command.pid))
        exec->stage = ENDING;
    if (exec->stage == RUNNING)
        exec->stirred = false;
    if (exec->stage == ENDING)
        bury(exec);
    if (exec->stage == RUNNING && exec->reaping.active && reaping_step(&exec->reaping))
        for (; exec->reaps > 0; exec->reaps--)
            link_say_u32(&exec->link, REAPED, (uint32_t)exec->reaping.killed.count);
    if (exec->stage == DRAINING && streams_drain(&exec->streams)) {
        link_say(&exec->link, END);
        exec->stage = DONE;
    }
}

enum { LISTEN, SPEAK, CHILDREN, TIMER, FAILURE, STREAMS, POLLS = STREAMS + STREAM_POLLS };

/* That it was started is said before anything of its output. */
static bool has_streams(const struct exec *exec) {
    return exec->stage == RUNNING || exec->stage == ENDING;
}

static void wait_for_something(struct exec *exec, struct pollfd polls[POLLS]) {
    polls[LISTEN] = (struct pollfd){exec->link.ended ? -1 : exec->link.in, POLLIN, 0};
    polls[SPEAK] = (struct pollfd){buffer_length(&exec->link.waiting) ? exec->link.out : -1, POLLOUT, 0};
    polls[CHILDREN] = (struct pollfd){exec->children, POLLIN, 0};
    polls[TIMER] = (struct pollfd){exec->timer, POLLIN, 0};
    polls[FAILURE] = (struct pollfd){exec->stage == STARTING ? exec->command.failure : -1, POLLIN, 0};
    for (int index = 0; index < STREAM_POLLS; index++)
        polls[STREAMS + index].fd = -1;
    if (has_streams(exec))
        streams_polls(&exec->streams, polls + STREAMS);
    bool again = exec->stage == ENDING || exec->reaping.active;
    poll(polls, POLLS, again ? LOOK_AGAIN_MILLISECONDS : -1);
}

/* What woke this process up: it looks after everything in any case. */
static bool forget(int fd) {
    char what[sizeof(struct signalfd_siginfo)];
    while (read(fd, what, sizeof what) > 0)
        continue;
    return true;
}

static void react(struct exec *exec, const struct pollfd polls[POLLS]) {
    if (polls[CHILDREN].revents)
        exec->stirred = forget(exec->children);
    if (polls[TIMER].revents)
        forget(exec->timer);
    if (polls[SPEAK].revents)
        link_flush(&exec->link);
    if (polls[LISTEN].revents)
        listen_to_instance(exec);
    if (exec->link.ended || now() >= exec->until)
        kill_all(exec);
    if (has_streams(exec))
        streams_move(&exec->streams, polls + STREAMS);
    look_after_processes(exec);
}

/* Whether there is something left to do for anybody. */
static bool goes_on(const struct exec *exec) {
    if (exec->stage < DRAINING)
        return true;
    if (exec->link.ended || now() >= exec->until)
        return false;
    return exec->stage == DRAINING || buffer_length(&exec->link.waiting) > 0;
}

static void prepare(struct exec *exec, const char *marker) {
    sigset_t child;
    memset(exec, 0, sizeof *exec);
    exec->marker = marker;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    signal(SIGPIPE, SIG_IGN);
    exec->children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    exec->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    link_open(&exec->link, STDIN_FILENO, STDOUT_FILENO);
    /* What loses its parent below this process becomes its child. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    set_until(exec, now() + (uint64_t)START_SECONDS * NANOSECONDS);
}

int exec_run(const char *marker) {
    static struct exec exec;
    struct pollfd polls[POLLS];
    prepare(&exec, marker);
    while (goes_on(&exec)) {
        wait_for_something(&exec, polls);
        react(&exec, polls);
    }
    return 0;
}
