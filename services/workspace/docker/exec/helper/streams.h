/* The command's standard streams: input at the command's pace, output within the window. */
#ifndef MOORAGE_STREAMS_H
#define MOORAGE_STREAMS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"
#include "link.h"

struct streams {
    struct link *link;
    int input, output, errors; /* -1 when closed */
    bool terminal;
    bool closing;          /* the input ends after what waits */
    struct buffer waiting; /* input that the command has not taken */
    size_t unread;         /* output that may still be sent */
};

void streams_open(struct streams *streams, struct link *link, const struct command *command, uint32_t window,
                  bool terminal);

/* Input from the instance; false when it is more than the window allows. */
bool streams_take(struct streams *streams, const unsigned char *bytes, size_t count);
void streams_close_input(struct streams *streams);

/* What to wait for: three entries, of which some may be unused. */
enum { STREAM_POLLS = 3 };
void streams_polls(const struct streams *streams, struct pollfd polls[STREAM_POLLS]);

/* Move what can be moved. */
void streams_move(struct streams *streams, const struct pollfd polls[STREAM_POLLS]);

/* Nobody writes any more: send what is left. Whether that was all of it. */
bool streams_drain(struct streams *streams);

#endif
