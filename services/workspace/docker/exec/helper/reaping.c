#include "reaping.h"

/* The kernel's lists have gaps while somebody exits. */
enum { LOOKS = 2 };

size_t reaping_mark(struct reaping *reaping) {
    process_set_clear(&reaping->older);
    for (int look = 0; look < LOOKS; look++)
        add_descendants(&reaping->older);
    return reaping->older.count;
}

void reaping_begin(struct reaping *reaping) {
    if (!reaping->active)
        process_set_clear(&reaping->killed);
    reaping->active = true;
}

static bool kill_younger(struct reaping *reaping) {
    struct process_set all = {0};
    bool found = false;
    add_descendants(&all);
    for (size_t index = 0; index < all.count; index++) {
        if (process_set_has(&reaping->older, all.items[index]))
            continue;
        found = true;
        kill_exactly(all.items[index]);
        process_set_add(&reaping->killed, all.items[index]);
    }
    process_set_clear(&all);
    return found;
}

bool reaping_step(struct reaping *reaping) {
    for (int look = 0; look < LOOKS; look++)
        if (kill_younger(reaping))
            return false;
    reaping->active = false;
    return true;
}
