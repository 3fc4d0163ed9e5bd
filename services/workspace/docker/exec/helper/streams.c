#include "streams.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

/* Output that may wait for the connection; more of it stays with the command. */
enum { LONGEST_QUEUE = 128 << 10 };

void streams_open(struct streams *streams, struct link *link, const struct command *command, uint32_t window,
                  bool terminal) {
    memset(streams, 0, sizeof *streams);
    streams->link = link;
    streams->input = command->input;
    streams->output = command->output;
    streams->errors = command->errors;
    streams->terminal = terminal;
    streams->unread = window;
}

static void close_input(struct streams *streams) {
    /* A terminal's input is its output, too. */
    if (streams->input >= 0 && !streams->terminal)
        close(streams->input);
    streams->input = -1;
}

static void refuse_input(struct streams *streams) {
    link_say(streams->link, REFUSED);
    close_input(streams);
}

static void write_input(struct streams *streams) {
    long count = buffer_write(&streams->waiting, streams->input);
    if (count > 0)
        link_say_u32(streams->link, WROTE, (uint32_t)count);
    if (count < 0) {
        refuse_input(streams);
    } else if (streams->closing && buffer_length(&streams->waiting) == 0) {
        close_input(streams);
    }
}

static void serve_input(struct streams *streams, short events) {
    if (!streams->terminal && (events & POLLERR))
        refuse_input(streams);
    else
        write_input(streams);
}

bool streams_take(struct streams *streams, const unsigned char *bytes, size_t count) {
    if (streams->input < 0)
        return true;
    if (buffer_length(&streams->waiting) + count > STDIN_WINDOW)
        return false;
    buffer_append(&streams->waiting, bytes, count);
    write_input(streams);
    return true;
}

void streams_close_input(struct streams *streams) {
    streams->closing = true;
    if (streams->input >= 0)
        write_input(streams);
}

static bool may_read(const struct streams *streams) {
    return streams->unread > 0 && buffer_length(&streams->link->waiting) < LONGEST_QUEUE;
}

void streams_polls(const struct streams *streams, struct pollfd polls[STREAM_POLLS]) {
    bool reading = may_read(streams);
    /* A pipe whose reader is gone says so unasked, and a full one has to be waited for. */
    polls[0] = (struct pollfd){streams->terminal && !buffer_length(&streams->waiting) ? -1 : streams->input,
                               buffer_length(&streams->waiting) ? POLLOUT : 0, 0};
    polls[1] = (struct pollfd){reading ? streams->output : -1, POLLIN, 0};
    polls[2] = (struct pollfd){reading ? streams->errors : -1, POLLIN, 0};
}

/* One piece from `*fd`, which is closed at its end; whether there was one. */
static bool read_piece(struct streams *streams, int *fd, unsigned char type) {
    if (*fd < 0 || !may_read(streams))
        return false;
    size_t size = streams->unread < LONGEST_PIECE ? streams->unread : LONGEST_PIECE;
    ssize_t count = read(*fd, link_begin(streams->link, size), size);
    if (count > 0) {
        streams->unread -= (size_t)count;
        link_finish(streams->link, type, (size_t)count);
        return true;
    }
    /* EIO is how a terminal says that nobody has its other side open any more. */
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
    return false;
}

static void read_output(struct streams *streams, int *fd, unsigned char type) {
    int before = *fd;
    read_piece(streams, fd, type);
    if (streams->terminal && before >= 0 && *fd < 0)
        streams->input = -1;
}

void streams_move(struct streams *streams, const struct pollfd polls[STREAM_POLLS]) {
    if (polls[0].revents && streams->input >= 0)
        serve_input(streams, polls[0].revents);
    if (polls[1].revents)
        read_output(streams, &streams->output, STDOUT);
    if (polls[2].revents)
        read_output(streams, &streams->errors, STDERR);
}

bool streams_drain(struct streams *streams) {
    while (read_piece(streams, &streams->output, STDOUT))
        continue;
    while (read_piece(streams, &streams->errors, STDERR))
        continue;
    return may_read(streams);
}
