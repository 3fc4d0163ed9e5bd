#include "place.h"

#include <stdio.h>
#include <sys/stat.h>

bool place_tell(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) {
        perror(path);
        return false;
    }
    return printf("%llu %llu\n", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino) > 0 &&
           fflush(stdout) == 0;
}
