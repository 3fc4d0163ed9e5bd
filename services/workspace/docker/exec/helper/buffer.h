/* Bytes that wait: appended at one end, taken at the other. */
#ifndef MOORAGE_BUFFER_H
#define MOORAGE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct buffer {
    unsigned char *bytes;
    size_t start, end, size;
};

/* How many bytes wait, and where they are. */
size_t buffer_length(const struct buffer *buffer);
unsigned char *buffer_head(const struct buffer *buffer);

/* Where `count` more bytes can be written; buffer_grow says that they were. Ends the process when memory is out. */
unsigned char *buffer_room(struct buffer *buffer, size_t count);
void buffer_grow(struct buffer *buffer, size_t count);

void buffer_append(struct buffer *buffer, const void *bytes, size_t count);
void buffer_take(struct buffer *buffer, size_t count);

/* Write to a descriptor what it takes without waiting. The count, or -1 with errno when nobody reads it. */
long buffer_write(struct buffer *buffer, int fd);

/* Numbers as the protocol has them. */
uint16_t get_u16(const unsigned char *at);
uint32_t get_u32(const unsigned char *at);
uint64_t get_u64(const unsigned char *at);
void put_u32(unsigned char *at, uint32_t value);
void put_u64(unsigned char *at, uint64_t value);

#endif
