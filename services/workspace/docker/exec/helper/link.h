/* The helper's side of the connection to the instance: frames in, frames out, never waiting. */
#ifndef MOORAGE_LINK_H
#define MOORAGE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

struct link {
    int in, out;
    struct buffer received, waiting;
    bool ended; /* the instance says nothing more, or nothing that makes sense */
};

struct frame {
    unsigned char type;
    const unsigned char *payload; /* until the next frame is taken */
    size_t length;
};

/* Make both descriptors non-blocking. */
void link_open(struct link *link, int in, int out);

/* Read what there is. */
void link_receive(struct link *link);

/* Whether a whole frame was received; `frame` is it. */
bool link_next(struct link *link, struct frame *frame);

/* Send frames; they wait when there is no room. */
void link_say(struct link *link, unsigned char type);
void link_say_u32(struct link *link, unsigned char type, uint32_t value);
void link_say_bytes(struct link *link, unsigned char type, const void *bytes, size_t count);

/* Begin a frame whose payload is written in place: at most `count` bytes at what it returns. */
unsigned char *link_begin(struct link *link, size_t count);
void link_finish(struct link *link, unsigned char type, size_t count);

/* Write what waits. */
void link_flush(struct link *link);

#endif
