/* What a directory is, wherever it is seen from. */
#ifndef MOORAGE_PLACE_H
#define MOORAGE_PLACE_H

#include <stdbool.h>

/* Print "DEVICE INODE" of what `path` leads to in this container, or why that cannot be told. */
bool place_tell(const char *path);

#endif
