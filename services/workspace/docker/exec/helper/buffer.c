#include "buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALLEST = 4096, OUT_OF_MEMORY_STATUS = 125 };

size_t buffer_length(const struct buffer *buffer) {
    return buffer->end - buffer->start;
}

unsigned char *buffer_head(const struct buffer *buffer) {
    return buffer->bytes + buffer->start;
}

static void move_to_front(struct buffer *buffer) {
    if (buffer->start > 0) {
        memmove(buffer->bytes, buffer_head(buffer), buffer_length(buffer));
        buffer->end -= buffer->start;
        buffer->start = 0;
    }
}

unsigned char *buffer_room(struct buffer *buffer, size_t count) {
    if (buffer->size - buffer->end < count)
        move_to_front(buffer);
    if (buffer->size - buffer->end < count) {
        size_t size = buffer->size ? buffer->size : SMALLEST;
        while (size - buffer->end < count)
            size *= 2;
        buffer->bytes = realloc(buffer->bytes, size);
        if (buffer->bytes == NULL)
            _exit(OUT_OF_MEMORY_STATUS);
        buffer->size = size;
    }
    return buffer->bytes + buffer->end;
}

void buffer_grow(struct buffer *buffer, size_t count) {
    buffer->end += count;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t count) {
    memcpy(buffer_room(buffer, count), bytes, count);
    buffer_grow(buffer, count);
}

void buffer_take(struct buffer *buffer, size_t count) {
    buffer->start += count;
    if (buffer->start == buffer->end)
        buffer->start = buffer->end = 0;
}

long buffer_write(struct buffer *buffer, int fd) {
    long written = 0;
    while (buffer_length(buffer) > 0) {
        ssize_t count = write(fd, buffer_head(buffer), buffer_length(buffer));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN ? written : -1;
        buffer_take(buffer, (size_t)count);
        written += count;
    }
    return written;
}

uint16_t get_u16(const unsigned char *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

uint32_t get_u32(const unsigned char *at) {
    return (uint32_t)get_u16(at) << 16 | get_u16(at + 2);
}

uint64_t get_u64(const unsigned char *at) {
    return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

void put_u32(unsigned char *at, uint32_t value) {
    for (int index = 0; index < 4; index++)
        at[index] = (unsigned char)(value >> (24 - 8 * index));
}

void put_u64(unsigned char *at, uint64_t value) {
    put_u32(at, (uint32_t)(value >> 32));
    put_u32(at + 4, (uint32_t)value);
}
