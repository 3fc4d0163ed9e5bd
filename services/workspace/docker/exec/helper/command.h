/* The command of an exec: from the START frame to a process that runs. */
#ifndef MOORAGE_COMMAND_H
#define MOORAGE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct request {
    uint64_t until;
    bool terminal;
    uint16_t columns, rows;
    uint32_t window;
    char *directory;
    char **arguments, **variables;
    void *memory;
};

/* Take a START frame's payload apart; false when it makes no sense. It copies what it needs. */
bool request_read(struct request *request, const unsigned char *payload, size_t length);

/* The helper's ends; of a terminal, `input` and `output` are the same one, and `errors` is -1. */
struct command {
    pid_t pid;
    int input, output, errors;
    int failure; /* end of file when the program runs, else its errno first */
};

/* Fork it. 0, or an errno with which it failed before that. All ends are non-blocking. */
int command_start(struct command *command, const struct request *request);

/* Set a terminal's size; its foreground processes get SIGWINCH. */
void command_resize(const struct command *command, uint16_t columns, uint16_t rows);

#endif
