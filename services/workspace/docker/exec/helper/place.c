#include "place.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct place place_of(const void *path, size_t length) {
    struct stat status;
    struct place place = {0, 0};
    char *text = strndup(path, length);
    if (text && stat(text, &status) == 0)
        place = (struct place){status.st_dev, status.st_ino};
    free(text);
    return place;
}
