/* Which directory a path leads to, as this container has it. */
#ifndef MOORAGE_PLACE_H
#define MOORAGE_PLACE_H

#include <stddef.h>
#include <stdint.h>

struct place {
    uint64_t device, inode;
};

/* `path` is so many bytes long. Zeros when it leads nowhere: nothing has them. */
struct place place_of(const void *path, size_t length);

#endif
