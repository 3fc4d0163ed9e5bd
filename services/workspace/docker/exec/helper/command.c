#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "buffer.h"
#include "memory.h"

extern char **environ;

enum { FIXED = 8 + 1 + 2 + 2 + 4 + 4 + 4, NOT_STARTED_STATUS = 127, LARGE_PIPE = 256 << 10 };

static char **take_texts(char **next, char **place, uint32_t count) {
    for (uint32_t index = 0; index < count; index++) {
        place[index] = *next;
        *next += strlen(*next) + 1;
    }
    place[count] = NULL;
    return place;
}

static size_t count_texts(const unsigned char *texts, size_t length) {
    size_t count = 0;
    for (size_t index = 0; index < length; index++)
        count += texts[index] == 0;
    return count;
}

bool request_read(struct request *request, const unsigned char *payload, size_t length) {
    if (length <= FIXED || payload[length - 1] != 0)
        return false;
    uint32_t arguments = get_u32(payload + 17), variables = get_u32(payload + 21);
    size_t texts = count_texts(payload + FIXED, length - FIXED);
    if (arguments == 0 || texts != (size_t)1 + arguments + variables)
        return false;
    request->until = get_u64(payload);
    request->terminal = payload[8] != 0;
    request->columns = get_u16(payload + 9);
    request->rows = get_u16(payload + 11);
    request->window = get_u32(payload + 13);
    char **places = request->memory = malloc((texts + 2) * sizeof(char *) + length - FIXED);
    if (places == NULL)
        return false;
    char *next = (char *)(places + texts + 2);
    memcpy(next, payload + FIXED, length - FIXED);
    request->directory = next;
    next += strlen(next) + 1;
    request->arguments = take_texts(&next, places, arguments);
    request->variables = take_texts(&next, places + arguments + 1, variables);
    return true;
}

static void restore_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const struct request *request, const int streams[3], int failure) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Until then it has the helper's link, which none of its user may open. */
    for (int target = 0; target < 3; target++)
        dup2(streams[target], target);
    /* The helper's own files in /proc are not even its own; a command's are. */
    prctl(PR_SET_DUMPABLE, 1);
    memory_go_first();
    if (request->terminal)
        ioctl(0, TIOCSCTTY, 0);
    restore_signals();
    /* The program is looked for in the PATH that it will have. */
    environ = request->variables;
    if (chdir(request->directory) == 0)
        execvp(request->arguments[0], request->arguments);
    int cause = errno;
    if (write(failure, &cause, sizeof cause) < 0) {
        /* The status tells. */
    }
    _exit(NOT_STARTED_STATUS);
}

static void set_nonblocking(int fd) {
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int make_pipes(struct command *command, int theirs[3]) {
    int input[2], output[2], errors[2];
    if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC) || pipe2(errors, O_CLOEXEC))
        return errno;
    theirs[0] = input[0], theirs[1] = output[1], theirs[2] = errors[1];
    command->input = input[1], command->output = output[0], command->errors = errors[0];
    /* Fewer turns between it and this process; where it is refused it stays as it is. */
    fcntl(output[0], F_SETPIPE_SZ, LARGE_PIPE);
    return 0;
}

static int make_terminal(struct command *command, int theirs[3]) {
    int controller = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (controller < 0 || grantpt(controller) || unlockpt(controller))
        return errno;
    int device = open(ptsname(controller), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (device < 0)
        return errno;
    theirs[0] = theirs[1] = theirs[2] = device;
    command->input = command->output = controller;
    command->errors = -1;
    return 0;
}

static void close_all(const int fds[3]) {
    for (int index = 0; index < 3; index++)
        if (index == 0 || fds[index] != fds[0])
            close(fds[index]);
}

int command_start(struct command *command, const struct request *request) {
    int theirs[3], failure[2];
    int error = (request->terminal ? make_terminal : make_pipes)(command, theirs);
    if (error == 0 && pipe2(failure, O_CLOEXEC))
        error = errno;
    if (error)
        return error;
    if (request->terminal)
        command_resize(command, request->columns, request->rows);
    command->pid = fork();
    if (command->pid == 0)
        become(request, theirs, failure[1]);
    error = errno;
    close_all(theirs);
    close(failure[1]);
    command->failure = failure[0];
    set_nonblocking(command->input);
    set_nonblocking(command->output);
    set_nonblocking(command->errors);
    set_nonblocking(command->failure);
    return command->pid < 0 ? error : 0;
}

void command_resize(const struct command *command, uint16_t columns, uint16_t rows) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    ioctl(command->input, TIOCSWINSZ, &size);
}
