#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

enum { RECEIVE = 64 << 10, LARGE_PIPE = 256 << 10 };

static void set_nonblocking(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void link_open(struct link *link, int in, int out) {
    memset(link, 0, sizeof *link);
    link->in = in;
    link->out = out;
    set_nonblocking(in);
    set_nonblocking(out);
    /* Fewer turns between this process and the engine's; where it is refused it stays as it is. */
    fcntl(out, F_SETPIPE_SZ, LARGE_PIPE);
}

void link_receive(struct link *link) {
    ssize_t count = read(link->in, buffer_room(&link->received, RECEIVE), RECEIVE);
    if (count > 0)
        buffer_grow(&link->received, (size_t)count);
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
        link->ended = true;
}

bool link_next(struct link *link, struct frame *frame) {
    size_t there = buffer_length(&link->received);
    if (there < FRAME_HEADER)
        return false;
    const unsigned char *head = buffer_head(&link->received);
    frame->type = head[0];
    frame->length = get_u32(head + 1);
    if (frame->length > LONGEST_FRAME)
        link->ended = true;
    if (link->ended || there - FRAME_HEADER < frame->length)
        return false;
    frame->payload = head + FRAME_HEADER;
    buffer_take(&link->received, FRAME_HEADER + frame->length);
    return true;
}

unsigned char *link_begin(struct link *link, size_t count) {
    return buffer_room(&link->waiting, FRAME_HEADER + count) + FRAME_HEADER;
}

void link_finish(struct link *link, unsigned char type, size_t count) {
    unsigned char *head = buffer_room(&link->waiting, FRAME_HEADER + count);
    head[0] = type;
    put_u32(head + 1, (uint32_t)count);
    buffer_grow(&link->waiting, FRAME_HEADER + count);
    link_flush(link);
}

void link_say_bytes(struct link *link, unsigned char type, const void *bytes, size_t count) {
    memcpy(link_begin(link, count), bytes, count);
    link_finish(link, type, count);
}

void link_say_u32(struct link *link, unsigned char type, uint32_t value) {
    put_u32(link_begin(link, 4), value);
    link_finish(link, type, 4);
}

void link_say(struct link *link, unsigned char type) {
    link_begin(link, 0);
    link_finish(link, type, 0);
}

void link_flush(struct link *link) {
    if (buffer_write(&link->waiting, link->out) < 0)
        link->ended = true;
}
