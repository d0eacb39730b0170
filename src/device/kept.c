/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled kernels on disk. To compile one takes some tenths of a second, to read it some tens of
 * microseconds. Each is a file of its own, whose name is a hash of all that it was made from, so
 * nothing in it can be out of date; it appears whole, by a new name, so any number of ranks and
 * programs use one folder without knowing of each other. A file that is torn or damaged all the
 * same is as good as none. Nothing here is an error: what can not be kept is compiled again.
 *
 * The folder is SHERD_KERNEL_CACHE, or sherd in XDG_CACHE_HOME, or .cache/sherd at home; no folder
 * if SHERD_KERNEL_CACHE is empty. It may be deleted at any time.
 */
#include "kept.h"

#include "base/file_limit.h"
#include "base/hash.h"
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FOLDER_BYTES = 4000, PATH_BYTES = FOLDER_BYTES + 64, MOST_BYTES = 256 << 20 };

/* What a file begins with; the binary follows. */
typedef struct head {
    char magic[8];
    sherd__kept_key key;
    uint64_t bytes, hash;
} head;

static const char magic[] = "sherdk1\n";

void sherd__kept_add(sherd__kept_key *key, const char *text)
{
    static const uint64_t salt[] = {0, 0x5851F42D4C957F2Du};

    for (int i = 0; i < 2; i++)
        key->word[i] = sherd__hash_text(key->word[i] ^ salt[i], text);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* False: nothing is kept. */
static bool folder_of(char out[FOLDER_BYTES])
{
    const char *given = getenv("SHERD_KERNEL_CACHE");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;

    if (given)
        n = snprintf(out, FOLDER_BYTES, "%s", given);
    else if (cache && *cache == '/')
        n = snprintf(out, FOLDER_BYTES, "%s/sherd", cache);
    else if (home && *home == '/')
        n = snprintf(out, FOLDER_BYTES, "%s/.cache/sherd", home);
    return n > 0 && n < FOLDER_BYTES;
}

static void path_of(char out[PATH_BYTES], const char *folder, const sherd__kept_key *key)
{
    snprintf(out, PATH_BYTES, "%s/%016llx%016llx.kernel", folder, (unsigned long long)key->word[0],
             (unsigned long long)key->word[1]);
}

/* It, and those that it lies in. What can not be made shows when a file is. */
static void make_folder(char *path)
{
    for (char *at = path; (at = strchr(at + 1, '/'));) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    (void)mkdir(path, 0700);
}

/* ---- contents -------------------------------------------------------------------------------- */

static bool read_all(int fd, void *out, size_t bytes)
{
    char *at = out;

    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static head head_of(const sherd__kept_key *key, const char *binary, size_t bytes)
{
    head h = {.key = *key, .bytes = bytes, .hash = sherd__hash_bytes(0, binary, bytes)};

    memcpy(h.magic, magic, sizeof h.magic);
    return h;
}

static char *read_file(sherd__heap *heap, int fd, const sherd__kept_key *key)
{
    struct stat about;
    head there;

    if (fstat(fd, &about) || !S_ISREG(about.st_mode) || !read_all(fd, &there, sizeof there) ||
        there.bytes == 0 || there.bytes > MOST_BYTES ||
        (uint64_t)about.st_size != sizeof there + there.bytes)
        return NULL;
    char *out = sherd__alloc(heap, there.bytes, 1);
    if (out && read_all(fd, out, there.bytes)) {
        head whole = head_of(key, out, there.bytes);
        if (memcmp(&there, &whole, sizeof there) == 0)
            return out;
    }
    sherd__free(heap, out);
    return NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

char *sherd__kept_read(sherd__heap *heap, const sherd__kept_key *key)
{
    char folder[FOLDER_BYTES], path[PATH_BYTES];

    if (!folder_of(folder))
        return NULL;
    path_of(path, folder, key);
    int fd = sherd__open_file(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    char *out = read_file(heap, fd, key);
    close(fd);
    return out;
}

/* A number that no other rank has at the moment. */
static unsigned long long own_number(const void *mine)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    return sherd__hash_word(sherd__hash_word((uint64_t)getpid(), (uintptr_t)mine),
                            (uint64_t)now.tv_nsec);
}

static int create(const char *part, char *folder)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL, fd = sherd__open_file(part, flags);

    if (fd >= 0 || errno != ENOENT)
        return fd;
    make_folder(folder);
    return sherd__open_file(part, flags);
}

void sherd__kept_write(const sherd__kept_key *key, const char *binary, size_t bytes)
{
    char folder[FOLDER_BYTES], path[PATH_BYTES], part[PATH_BYTES + 32];
    sherd__file_signal signal;

    if (!folder_of(folder) || bytes > MOST_BYTES)
        return;
    path_of(path, folder, key);
    snprintf(part, sizeof part, "%s.%016llx", path, own_number(binary));
    int fd = create(part, folder);
    if (fd < 0)
        return;
    head h = head_of(key, binary, bytes);
    sherd__file_signal_hold(&signal);
    bool good = write_all(fd, &h, sizeof h) && write_all(fd, binary, bytes);
    sherd__file_signal_drop(&signal);
    good = close(fd) == 0 && good;
    if (!good || rename(part, path))
        (void)unlink(part);
}
