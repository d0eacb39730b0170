/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit on what tensors of all ranks take together. A rank sees the whole machine, but the
 * others have theirs from the same memory, and a memory cgroup ends whoever goes beyond it by a
 * signal that nobody can catch. So each rank looks once, when it joins, at what it may have; the
 * least of all ranks counts for their sum. Some 50 us.
 */
#include "limit.h"
#include "inside.h"
#include "remote.h"

#include "base/variable.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANK_SHARE = 4 << 20, TEXT_BYTES = 1 << 16, NAME_BYTES = 2 * PATH_MAX };

/* ---- texts ----------------------------------------------------------------------------------- */

const char *sherd__limit_name(sherd__limit_by by)
{
    static const char *const names[] = {
        [SHERD__BY_USER] = "SHERD_ARENA_BYTES",
        [SHERD__BY_MACHINE] = "the machine's memory",
        [SHERD__BY_CGROUP] = "the memory cgroup",
        [SHERD__BY_ADDRESSES] = "RLIMIT_AS",
    };
    return names[by] ? names[by] : "";
}

bool sherd__bytes_read(uint64_t *out, const char *text)
{
    static const char units[] = "KMGT";
    uint64_t bytes = 0;
    int shift = 0;

    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (bytes > (UINT64_MAX >> 2) / 10)
            return false;
        bytes = 10 * bytes + (uint64_t)(*text - '0');
    }
    const char *unit = *text ? strchr(units, *text) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        text++;
    }
    if (*text || bytes == 0 || bytes > (UINT64_MAX >> 2) >> shift)
        return false;
    *out = bytes << shift;
    return true;
}

uint64_t sherd__cgroup_bytes(const char *text)
{
    char *end = NULL;
    unsigned long long bytes = strtoull(text, &end, 10);

    return end == text || *text == '-' ? UINT64_MAX : bytes; /* "max" */
}

/* The n-th field of a line, from 0, fields being apart by one blank; its end in *end. NULL: there
 * are fewer. */
static const char *field(const char *line, int n, const char **end)
{
    const char *stop = line + strcspn(line, "\n");

    for (; n > 0; n--) {
        line += strcspn(line, " \n");
        if (line >= stop)
            return NULL;
        line++;
    }
    *end = line + strcspn(line, " \n");
    return line;
}

/* Whether a word stands in a list with commas that ends at `end`. */
static bool has_word(const char *list, const char *end, const char *word)
{
    size_t length = strlen(word);

    while (list < end) {
        size_t part = strcspn(list, ",: \n");
        if (part == length && strncmp(list, word, part) == 0)
            return true;
        list += part + 1;
    }
    return false;
}

/* The path in the line "4:memory:/path" of a controller, or "0::/path"; NULL if there is none. */
static const char *group_path(const char *groups, int version)
{
    for (; *groups; groups += strcspn(groups, "\n"), groups += *groups == '\n') {
        const char *list = groups + strcspn(groups, ":\n");
        if (*list != ':')
            continue;
        const char *end = list + 1 + strcspn(list + 1, ":\n");
        list++;
        if (*end == ':' && (version == 2 ? list == end && strncmp(groups, "0:", 2) == 0
                                         : has_word(list, end, "memory")))
            return end + 1;
    }
    return NULL;
}

/* Whether a line of mountinfo, "35 31 0:32 /root /point rw - cgroup cgroup rw,memory", is of this
 * version's cgroups. */
static bool is_cgroup_mount(const char *line, int version)
{
    const char *end = line + strcspn(line, "\n"), *dash = strstr(line, " - "), *stop;

    if (!dash || dash >= end)
        return false;
    if (version == 2)
        return strncmp(dash, " - cgroup2 ", 11) == 0;
    const char *options = field(dash + 1, 3, &stop);
    return strncmp(dash, " - cgroup ", 10) == 0 && options && has_word(options, stop, "memory");
}

/* A name of mountinfo, in which blanks and such are octal numbers, as a text; false if it is too
 * long. */
static bool take_name(char *out, size_t room, const char *name, const char *end)
{
    size_t n = 0;

    while (name < end && n + 1 < room) {
        if (name[0] == '\\' && end - name >= 4) {
            out[n++] = (char)((name[1] - '0') * 64 + (name[2] - '0') * 8 + (name[3] - '0'));
            name += 4;
        } else {
            out[n++] = *name++;
        }
    }
    out[n] = '\0';
    return name == end;
}

bool sherd__cgroup_folder(char *out, size_t room, size_t *mount, const char *groups,
                          const char *mounts, int version)
{
    const char *path = group_path(groups, version), *root, *point, *root_end, *point_end;
    char top[PATH_MAX];

    while (*mounts && !is_cgroup_mount(mounts, version)) {
        mounts += strcspn(mounts, "\n");
        mounts += *mounts == '\n';
    }
    if (!path || !*mounts)
        return false;
    root = field(mounts, 3, &root_end);
    point = field(mounts, 4, &point_end);
    if (!root || !point || !take_name(top, sizeof top, root, root_end) ||
        !take_name(out, room, point, point_end))
        return false;
    *mount = strlen(out);
    /* In a container a part of the hierarchy is mounted, and the path may name what lies above
     * it. */
    size_t above = strcmp(top, "/") == 0 ? 0 : strlen(top), length = strcspn(path, "\n");
    if (above <= length && strncmp(path, top, above) == 0 &&
        (above == length || path[above] == '/') && length - above < room - *mount)
        snprintf(out + *mount, room - *mount, "%.*s", (int)(length - above), path + above);
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The text of a file into out[room]; false if it can not be read, or does not fit. */
static bool read_file(char *out, size_t room, const char *root, const char *name)
{
    char path[NAME_BYTES];
    size_t n = 0;
    ssize_t more = -1;

    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (n + 1 < room && (more = read(fd, out + n, room - 1 - n)) > 0)
        n += (size_t)more;
    close(fd);
    out[n] = '\0';
    return more == 0;
}

/* The whole text of a file, however long; NULL: it can not be read, or there is no memory. The
 * caller frees it. */
static char *read_text(sherd__heap *heap, const char *root, const char *name)
{
    char path[NAME_BYTES], *text = NULL;
    size_t n = 0, room = 0;
    ssize_t more = 1;

    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && more > 0) {
        if (n + 1 >= room) {
            char *grown = sherd__grow(heap, text, room, room + TEXT_BYTES, 1);
            if (!grown)
                break;
            text = grown;
            room += TEXT_BYTES;
        }
        more = read(fd, text + n, room - 1 - n);
        n += more > 0 ? (size_t)more : 0;
    }
    if (fd >= 0)
        close(fd);
    if (text && more == 0) {
        text[n] = '\0';
        return text;
    }
    sherd__free(heap, text);
    return NULL;
}

/* The least limit of a cgroup and of all above it. */
static uint64_t least_above(const char *root, char *folder, size_t mount, const char *file)
{
    char name[NAME_BYTES], text[64];
    uint64_t least = UINT64_MAX;

    for (;;) {
        snprintf(name, sizeof name, "%s/%s", folder, file);
        if (read_file(text, sizeof text, root, name) && sherd__cgroup_bytes(text) < least)
            least = sherd__cgroup_bytes(text);
        char *slash = strrchr(folder + mount, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

static uint64_t cgroup_limit(const char *root)
{
    static const char *const file[] = {"memory.limit_in_bytes", "memory.max"};
    sherd__heap heap = {0};
    char folder[PATH_MAX], *groups = read_text(&heap, root, "/proc/self/cgroup");
    char *mounts = read_text(&heap, root, "/proc/self/mountinfo");
    uint64_t least = UINT64_MAX;
    size_t mount;

    for (int version = 1; groups && mounts && version <= 2; version++) {
        if (!sherd__cgroup_folder(folder, sizeof folder, &mount, groups, mounts, version))
            continue;
        uint64_t bytes = least_above(root, folder, mount, file[version - 1]);
        least = bytes < least ? bytes : least;
    }
    sherd__free(&heap, mounts);
    sherd__free(&heap, groups);
    return least;
}

uint64_t sherd__machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 32;
}

uint64_t sherd__limit_share(uint64_t bytes, int ranks)
{
    uint64_t share = bytes / 8, least = (uint64_t)ranks * RANK_SHARE;

    if (share < least)
        share = least < bytes / 2 ? least : bytes / 2;
    return bytes - share;
}

sherd__limit sherd__limit_detect(const char *root, int ranks)
{
    sherd__limit limit = {sherd__machine_memory(), SHERD__BY_MACHINE};
    uint64_t cgroup = cgroup_limit(root);
    struct rlimit addresses;

    if (cgroup < limit.bytes)
        limit = (sherd__limit){cgroup, SHERD__BY_CGROUP};
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY &&
        addresses.rlim_cur < limit.bytes)
        limit = (sherd__limit){addresses.rlim_cur, SHERD__BY_ADDRESSES};
    limit.bytes = sherd__limit_share(limit.bytes, ranks);
    return limit;
}

/* ---- what ranks have agreed on --------------------------------------------------------------- */

/* A limit and who sets it in one word: the low byte of the number of bytes is dropped. */
static uint64_t word_of(sherd__limit limit)
{
    return (limit.bytes & ~UINT64_C(0xFF)) | (uint64_t)limit.by;
}

/* Refuse a limit that has not even a piece of memory for each rank. */
static sherd_status refuse_few(sherd_world *world, const char *text)
{
    int ranks = world->remote ? world->remote->here : world->ranks;

    return sherd__fail(
        &world->diag, SHERD_EINVAL,
        "SHERD_ARENA_BYTES=%.40s (sherd run --memory): a rank takes memory in pieces "
        "of %d KB, so %d ranks need at least %lldK",
        text, SHERD__PIECE >> 10, ranks, (long long)ranks * SHERD__PIECE >> 10);
}

sherd_status sherd__limit_join(sherd_world *world)
{
    sherd__word *word = &world->arena.control->limit;
    const char *text = sherd__variable("SHERD_ARENA_BYTES");
    uint64_t before = sherd__look(word);
    sherd__limit mine = {0, SHERD__BY_USER};

    if (world->dry) /* what it takes is to be seen */
        mine = (sherd__limit){world->arena.control->region_bytes, SHERD__BY_ADDRESSES};
    else if (!text)
        mine = sherd__limit_detect("", world->ranks);
    else if (!sherd__bytes_read(&mine.bytes, text))
        return sherd__fail(&world->diag, SHERD_EINVAL,
                           "SHERD_ARENA_BYTES=%.40s: expected a number of bytes, for example 8G, "
                           "512M or 1073741824",
                           text);
    uint64_t share = mine.bytes / (uint64_t)(world->remote ? world->remote->here : world->ranks);
    if (text && !world->dry && share < SHERD__PIECE)
        return refuse_few(world, text);
    if (world->remote) /* the other ranks of this machine have arenas of their own */
        mine.bytes = share;
    while ((!before || word_of(mine) < before) &&
           !atomic_compare_exchange_weak(word, &before, word_of(mine)))
        ;
    return SHERD_OK;
}

sherd__limit sherd__limit_of(const sherd_world *world)
{
    uint64_t word = world->arena.control ? sherd__peek(&world->arena.control->limit) : 0;

    return (sherd__limit){word & ~UINT64_C(0xFF), (sherd__limit_by)(word & 0xFF)};
}
