/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels on disk: the second device compiles nothing; what would change the result is
 * compiled anew; files that are damaged, and places that cannot be written to, are no error. */
#define CHECK_PURE
#include "device.h"
#include "device/kept.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { N = 100 };

/* ---- folders --------------------------------------------------------------------------------- */

static void folder_name(char out[256], const char *inside)
{
    const char *temporary = getenv("TMPDIR");

    snprintf(out, 256, "%s/sherd_kept_%d%s", temporary ? temporary : "/tmp", (int)getpid(), inside);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_all(void)
{
    char folder[256];

    folder_name(folder, "");
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* What a folder has, and the path of one of them. */
static int files_in(const char *folder, char path[600])
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int count = 0;

    while (directory && (entry = readdir(directory)))
        if (entry->d_name[0] != '.') {
            snprintf(path, 600, "%s/%s", folder, entry->d_name);
            count++;
        }
    if (directory)
        closedir(directory);
    return count;
}

/* Kernels are kept in this folder of this test, which is not there yet. */
static void keep_in(char out[256], const char *inside)
{
    remove_all();
    folder_name(out, inside);
    choose_cuda();
    setenv("SHERD_KERNEL_CACHE", out, 1);
}

static void keep_nothing(void)
{
    remove_all();
    setenv("SHERD_KERNEL_CACHE", "", 1);
}

/* ---- a kernel -------------------------------------------------------------------------------- */

static int compilations(void)
{
    return ((int (*)(void))emulated_function("emulated_cuda_compiled"))();
}

static void choose_compiler(int version)
{
    ((void (*)(int))emulated_function("emulated_cuda_compiler"))(version);
}

static bool is_filled(sherd__device *device, sherd__device_block *block)
{
    float back[N];
    int wrong = 0;

    sherd__device_fill(device, SHERD_F32, block->data, N, 3);
    if (!sherd__device_download(device, back, block->data, sizeof back))
        return false;
    for (int i = 0; i < N; i++)
        wrong += back[i] != 3;
    return wrong == 0;
}

/* A new device runs a kernel: how many it has compiled for that. */
static int compiled_for_one(void)
{
    int before = compilations();
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *block = device ? sherd__device_take(device, sizeof(float) * N) : NULL;

    if (!CHECK(block))
        return -1;
    CHECK(is_filled(device, block));
    sherd__device_give(device, block);
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
    return compilations() - before;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void what_is_kept_is_not_compiled_again(void)
{
    char folder[256], path[600];

    if (!is_emulated())
        return;
    keep_in(folder, "/deeply/inside");
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(files_in(folder, path), 1);
    CHECK_EQ(compiled_for_one(), 0);
    CHECK_EQ(compiled_for_one(), 0);
    CHECK_EQ(files_in(folder, path), 1);
    keep_nothing();
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(compiled_for_one(), 1);
}

static void another_result_has_another_file(void)
{
    static const char *const architectures[] = {"80", "90", "121"}; /* the last is unknown */
    char folder[256], path[600];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    for (int again = 0; again < 2; again++)
        for (int version = 0; version < 2; version++)
            for (int i = 0; i < LEN(architectures); i++) {
                setenv("SHERD_EMULATED_CUDA_ARCH", architectures[i], 1);
                choose_compiler(version);
                CHECK_EQ(compiled_for_one(), !again);
            }
    unsetenv("SHERD_EMULATED_CUDA_ARCH");
    choose_compiler(0);
    CHECK_EQ(files_in(folder, path), 2 * LEN(architectures));
    keep_nothing();
}

static void each_text_counts(void)
{
    static const char *const texts[][3] = {{"", "", ""},   {"a", "", ""},  {"", "a", ""},
                                           {"ab", "", ""}, {"a", "b", ""}, {"b", "a", ""}};
    sherd__kept_key key[LEN(texts)] = {{{0}}};

    for (int i = 0; i < LEN(texts); i++) {
        for (int k = 0; k < 3; k++)
            sherd__kept_add(&key[i], texts[i][k]);
        for (int j = 0; j < i; j++)
            for (int w = 0; w < 2; w++)
                CHECK(key[i].word[w] != key[j].word[w]);
        CHECK(key[i].word[0] != key[i].word[1]);
    }
}

/* The file with one byte changed, or of another length; the number of such ways, at least. */
static int damage(const char *path, int way)
{
    char data[4096];
    FILE *file = fopen(path, "rb");
    int bytes = file ? (int)fread(data, 1, sizeof data, file) : 0;

    CHECK(file && fclose(file) == 0 && bytes > 40 && bytes < 4000);
    if (way < bytes)
        data[way] ^= 0x20;
    int length = way < bytes ? bytes : way == bytes ? bytes + 1 : 2 * bytes - way;
    data[bytes] = 0;
    file = fopen(path, "wb");
    CHECK(file && (int)fwrite(data, 1, (size_t)length, file) == length && fclose(file) == 0);
    return 2 * bytes;
}

static void damaged_files_are_made_anew(void)
{
    char folder[256], path[600];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    CHECK_EQ(compiled_for_one(), 1);
    for (int way = 0, ways = 1; way <= ways; way++) {
        CHECK_EQ(files_in(folder, path), 1);
        ways = damage(path, way);
        CHECK_EQ(compiled_for_one(), 1);
    }
    CHECK_EQ(compiled_for_one(), 0);
    keep_nothing();
}

/* A whole file, but of no use to the driver. */
static void what_the_driver_refuses_is_compiled_anew(void)
{
    static const char *const foreign[] = {"rubbish", "cubin of_something_else"};
    char folder[256], path[600];
    unsigned long long word[2] = {0};

    for (int i = 0; i < LEN(foreign) && is_emulated(); i++) {
        keep_in(folder, "");
        CHECK_EQ(compiled_for_one(), 1);
        CHECK_EQ(files_in(folder, path), 1);
        CHECK_EQ(sscanf(strrchr(path, '/'), "/%16llx%16llx.kernel", &word[0], &word[1]), 2);
        sherd__kept_write(&(sherd__kept_key){{word[0], word[1]}}, foreign[i],
                          strlen(foreign[i]) + 1);
        CHECK_EQ(files_in(folder, path), 1);
        CHECK_EQ(compiled_for_one(), 1);
        CHECK_EQ(compiled_for_one(), 0);
    }
    keep_nothing();
}

/* Something that is no file bears its name. */
static void what_is_no_file_is_left_alone(void)
{
    char folder[256], path[600];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(files_in(folder, path), 1);
    CHECK(unlink(path) == 0 && mkdir(path, 0700) == 0);
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(compiled_for_one(), 1);
    CHECK(rmdir(path) == 0 && mkfifo(path, 0600) == 0); /* nobody writes into it */
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(files_in(folder, path), 1);
    keep_nothing();
}

static void a_place_that_cannot_be_written_to_is_no_error(void)
{
    char folder[256], path[600], deep[5000];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    CHECK(mkdir(folder, 0500) == 0);
    CHECK_EQ(compiled_for_one(), 1);
    CHECK_EQ(compiled_for_one(), geteuid() != 0); /* root writes everywhere */
    setenv("SHERD_KERNEL_CACHE", "/dev/null/sherd", 1);
    CHECK_EQ(compiled_for_one(), 1);
    memset(deep, 'x', sizeof deep);
    deep[0] = '/';
    deep[sizeof deep - 1] = '\0';
    setenv("SHERD_KERNEL_CACHE", deep, 1);
    CHECK_EQ(compiled_for_one(), 1);
    CHECK(files_in(folder, path) <= 1);
    keep_nothing();
}

/* With a limit on the size of files, nothing is kept, and no part of it. */
static void what_does_not_fit_is_not_kept(void)
{
    struct rlimit before, small;
    sherd__heap heap = {0};
    char folder[256], path[600];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *block = device ? sherd__device_take(device, sizeof(float) * N) : NULL;
    if (!CHECK(block && getrlimit(RLIMIT_FSIZE, &before) == 0))
        return;
    small = before;
    small.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    sherd__device_fill(device, SHERD_F32, block->data, N, 3);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(is_filled(device, block));
    CHECK(access(folder, F_OK) == 0);
    CHECK_EQ(files_in(folder, path), 0);
    sherd__device_give(device, block);
    close_gpu(&heap, device);
    keep_nothing();
}

/* Where kernels are kept if nothing is said about it. */
static void the_place_is_found_in_the_environment(void)
{
    char folder[256], at[256], path[600];
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;

    if (!is_emulated())
        return;
    keep_in(folder, "");
    unsetenv("SHERD_KERNEL_CACHE");
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("HOME", "/dev/null", 1);
    CHECK_EQ(compiled_for_one(), 1);
    folder_name(at, "/sherd");
    CHECK_EQ(files_in(at, path), 1);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", folder, 1);
    CHECK_EQ(compiled_for_one(), 1);
    folder_name(at, "/.cache/sherd");
    CHECK_EQ(files_in(at, path), 1);
    unsetenv("XDG_CACHE_HOME");
    CHECK_EQ(compiled_for_one(), 0);
    unsetenv("HOME");
    CHECK_EQ(compiled_for_one(), 1);
    if (home)
        setenv("HOME", home, 1);
    free(home);
    keep_nothing();
}

static void *fill_once(void *unused)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *block = device ? sherd__device_take(device, sizeof(float) * N) : NULL;

    CHECK(block && is_filled(device, block));
    if (device)
        sherd__device_give(device, block);
    close_gpu(&heap, device);
    return unused;
}

static void ranks_that_start_together_keep_one_file(void)
{
    pthread_t thread[8];
    char folder[256], path[600];

    if (!is_emulated())
        return;
    for (int round = 0; round < 10; round++) {
        keep_in(folder, "/a/b/c");
        for (int i = 0; i < LEN(thread); i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, fill_once, NULL), 0);
        for (int i = 0; i < LEN(thread); i++)
            pthread_join(thread[i], NULL);
        CHECK_EQ(files_in(folder, path), 1);
        CHECK_EQ(compiled_for_one(), 0);
    }
    keep_nothing();
}

/* Each allocation, or call of CUDA's, on the way of a kernel that is kept fails in turn. */
static void what_fails_leaves_nothing(void)
{
    char folder[256];

    if (!is_emulated())
        return;
    keep_in(folder, "");
    CHECK_EQ(compiled_for_one(), 1);
    for (int calls = 0; calls < 2; calls++)
        for (int at = 0; at < 12; at++) {
            sherd__heap heap = {0};
            sherd__device *device = open_gpu(&heap, "cuda", 0);
            sherd__device_block *block = device ? sherd__device_take(device, 4 * N) : NULL;
            if (!CHECK(block))
                return;
            heap.fail_at = calls ? 0 : heap.allocations + 1 + at;
            lack_call(calls ? at : -1);
            sherd__device_fill(device, SHERD_F32, block->data, N, 3);
            fail_call(-1);
            heap.fail_at = 0;
            CHECK(!sherd__device_fault(device));
            (void)sherd__device_lacked(device);
            CHECK(is_filled(device, block));
            sherd__device_give(device, block);
            close_gpu(&heap, device);
            CHECK_EQ(left_of_cuda(), 0);
        }
    keep_nothing();
}

static const check_test tests[] = {
    {TEST(what_is_kept_is_not_compiled_again)},
    {TEST(another_result_has_another_file)},
    {TEST(each_text_counts)},
    {TEST(damaged_files_are_made_anew)},
    {TEST(what_the_driver_refuses_is_compiled_anew)},
    {TEST(what_is_no_file_is_left_alone)},
    {TEST(a_place_that_cannot_be_written_to_is_no_error)},
    {TEST(what_does_not_fit_is_not_kept)},
    {TEST(the_place_is_found_in_the_environment)},
    {TEST(ranks_that_start_together_keep_one_file)},
    {TEST(what_fails_leaves_nothing)},
};
CHECK_MAIN(tests)
