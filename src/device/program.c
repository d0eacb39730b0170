/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: compiled by NVRTC when they are first wanted, or read from disk if they were compiled
 * before (kept.c), and held until the device is closed; and launched. A program's text is
 * numbers.cuh, its arguments and its templates, and a last line that makes the one instance. To
 * compile one takes some tenths of a second; to find it again 20 ns.
 */
#include "inside.h"
#include "kept.h"
#include "texts.h"

#include "base/hash.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const program_name[SHERD__PROGRAMS] = {
    [SHERD__PROGRAM_ELEMENTS] = "elements",
    [SHERD__PROGRAM_COPY] = "copy",
    [SHERD__PROGRAM_REDUCE] = "reduce",
    [SHERD__PROGRAM_ROWS] = "rows",
    [SHERD__PROGRAM_OVER_ROWS] = "over_rows",
    [SHERD__PROGRAM_ATTENTION] = "attention",
    [SHERD__PROGRAM_ATTENTION_HALF] = "attention_half",
    [SHERD__PROGRAM_UPDATE] = "update",
    [SHERD__PROGRAM_ROTARY] = "rotary",
    [SHERD__PROGRAM_RESIDUAL] = "residual",
    [SHERD__PROGRAM_SHARED_ROWS] = "shared_rows",
    [SHERD__PROGRAM_COMPARE] = "compare",
    [SHERD__PROGRAM_WHOLE] = "whole",
    [SHERD__PROGRAM_FOLDS] = "folds",
    [SHERD__PROGRAM_RUNNING] = "running",
    [SHERD__PROGRAM_DECODE] = "decode",
    [SHERD__PROGRAM_TABLES] = "tables",
    [SHERD__PROGRAM_ORDER] = "order",
    [SHERD__PROGRAM_SETS] = "sets",
    [SHERD__PROGRAM_FIELDS] = "fields",
};

struct sherd__device_kernel {
    sherd__kernel what;
    struct sherd__device_kernel *of; /* an equal kernel whose name has other pointers; or itself */
    CUmodule module;                 /* NULL: `of` has it */
    CUfunction function;
    int shared; /* of itself: memory of a block that it may ask for at a launch, as far as said */
};

enum { NAME_BYTES = 160, HEADERS = 11, OPTIONS = 3 };

/* What programs include. */
static const char *const header_name[HEADERS] = {
    "functions.inc",       "kernels/functions.inc", "attention_args.h", "attention.cuh",
    "attention_more.cuh",  "attention_tiles.cuh",   "philox.cuh",       "entropy.cuh",
    "attention_warps.cuh", "cached_rows.cuh",       "lines.cuh"};

/* What the compiler gets, and what that is kept under. */
typedef struct source {
    const char *text, *name;
    const char *header[HEADERS], *option[OPTIONS];
    char architecture[64];
    bool keeps;
    sherd__kept_key key;
} source;

/* ---- the text -------------------------------------------------------------------------------- */

static const char *text_of(const char *name)
{
    for (const sherd__device_text *t = sherd__device_texts; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return (const char *)t->text;
    return NULL;
}

/* The type of an element; bool is another one in C++. */
static const char *dtype_of(sherd_dtype dtype)
{
    return dtype == SHERD_DTYPE_NONE ? NULL : dtype == SHERD_BOOL ? "b8" : sherd_dtype_name(dtype);
}

/* family, kind, a and b with `between` between them. */
static void list(char out[NAME_BYTES], const char *const *word, int words, const char *between)
{
    int n = 0;

    out[0] = '\0';
    for (int i = 0; i < words; i++)
        if (word[i] && n < NAME_BYTES)
            n += snprintf(out + n, (size_t)(NAME_BYTES - n), "%s%s", n ? between : "", word[i]);
}

static void name_of(char out[NAME_BYTES], const sherd__kernel *k)
{
    const char *word[] = {k->family, k->kind, dtype_of(k->a), dtype_of(k->b)};

    list(out, word, 4, "_");
}

/* The line that makes the instance. */
static void last_line(char *out, size_t bytes, const sherd__kernel *k)
{
    const char *word[] = {k->kind, dtype_of(k->a), dtype_of(k->b)};
    char name[NAME_BYTES], types[NAME_BYTES];

    name_of(name, k);
    list(types, word, 3, ", ");
    snprintf(out, bytes, "KERNEL(%s, %s_args) { %s%s%s%s(a); }\n", name, k->family, k->family,
             *types ? "<" : "", types, *types ? ">" : "");
}

/* The whole program, to be freed. NULL: no memory, or no such program, which is noted. */
static char *assemble(sherd__device *device, const sherd__kernel *k)
{
    char file[3][64], last[4 * NAME_BYTES];
    const char *text[3];
    size_t bytes = sizeof last + sizeof file + 64;

    snprintf(file[0], sizeof file[0], "numbers.cuh");
    snprintf(file[1], sizeof file[1], "%s_args.h", program_name[k->program]);
    snprintf(file[2], sizeof file[2], "%s.cu", program_name[k->program]);
    for (int i = 0; i < 3; i++) {
        text[i] = text_of(file[i]);
        if (!text[i]) {
            sherd__device_fail(device, "there is no program %s", file[i]);
            return NULL;
        }
        bytes += strlen(text[i]);
    }
    last_line(last, sizeof last, k);
    char *out = sherd__alloc(device->heap, bytes, 1);
    if (!out) {
        sherd__device_lack(device, "out of memory for a program");
        return NULL;
    }
    snprintf(out, bytes, "#line 1 \"%s\"\n%s\n#line 1 \"%s\"\n%s\n#line 1 \"%s\"\n%s\n%s", file[0],
             text[0], file[1], text[1], file[2], text[2], last);
    return out;
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* Compile for the GPU itself, or if the compiler is older, for the newest one it knows before it:
 * the driver compiles on from there. */
static void choose_architecture(sherd__device *device, char *option, size_t bytes)
{
    enum { MOST = 128 };
    int count = 0, known[MOST] = {0}, best = 0;

    if (device->cuda.architectures_count(&count) || count > MOST ||
        device->cuda.architectures(known))
        count = 0;
    for (int i = 0; i < count; i++)
        if (known[i] <= device->architecture && known[i] > best)
            best = known[i];
    device->by_ptx = best && best < device->architecture;
    snprintf(option, bytes, "--gpu-architecture=%s_%d", device->by_ptx ? "compute" : "sm",
             best ? best : device->architecture);
}

/* Hash everything that the compiled kernel depends on. */
static void find_key(const sherd__device *device, source *s)
{
    int major = 0, minor = 0;
    char version[32];

    s->keeps = device->cuda.compiler_version(&major, &minor) == 0;
    snprintf(version, sizeof version, "%d.%d", major, minor);
    sherd__kept_add(&s->key, version);
    sherd__kept_add(&s->key, s->text);
    for (int i = 0; i < HEADERS; i++) {
        sherd__kept_add(&s->key, header_name[i]);
        sherd__kept_add(&s->key, s->header[i]);
    }
    for (int i = 0; i < OPTIONS; i++)
        sherd__kept_add(&s->key, s->option[i]);
}

static void describe(sherd__device *device, source *s, const char *text, const char *name)
{
    *s = (source){
        .text = text, .name = name, .option = {s->architecture, "-default-device", "--std=c++17"}};
    choose_architecture(device, s->architecture, sizeof s->architecture);
    for (int i = 0; i < HEADERS; i++) {
        const char *folder = strrchr(header_name[i], '/');
        s->header[i] = text_of(folder ? folder + 1 : header_name[i]);
    }
    find_key(device, s);
}

/* Whether a call of the compiler went well; otherwise that is noted. */
static bool good(sherd__device *device, int result, const char *name, const char *what)
{
    if (result == NVRTC_ERROR_OUT_OF_MEMORY)
        sherd__device_lack(device, "out of memory for a program");
    else if (result)
        sherd__device_fail(device, "%s: %s", name, what);
    return result == 0;
}

/* The line of the compiler's log that says what is wrong. */
static void note_log(sherd__device *device, nvrtcProgram program, const char *name)
{
    size_t bytes = 0;
    char *log = NULL;
    bool there = device->cuda.log_bytes(program, &bytes) == 0 && bytes > 0 &&
                 (log = sherd__alloc(device->heap, bytes + 1, 1)) != NULL &&
                 device->cuda.log(program, log) == 0;
    const char *line = there ? strstr(log, "error") : NULL;

    while (line && line > log && line[-1] != '\n')
        line--;
    if (!line)
        line = there && *log ? log : "the compiler does not say why";
    sherd__device_fail(device, "%s does not compile: %.*s", name, (int)strcspn(line, "\n"), line);
    sherd__free(device->heap, log);
}

static bool compile(sherd__device *device, nvrtcProgram program, const source *s)
{
    int result = device->cuda.program_compile(program, OPTIONS, s->option);

    if (result && result != NVRTC_ERROR_OUT_OF_MEMORY)
        note_log(device, program, s->name);
    return good(device, result, s->name, "it does not compile");
}

/* What was compiled, to be freed; NULL: noted. */
static char *result_of(sherd__device *device, nvrtcProgram program, const char *name, size_t *bytes)
{
    static const char no_result[] = "the compiler has no result";
    const sherd__cuda *cuda = &device->cuda;
    bool ptx = device->by_ptx;

    int result = (ptx ? cuda->ptx_bytes : cuda->cubin_bytes)(program, bytes);
    if (!result && *bytes == 0)
        result = -1;
    if (!good(device, result, name, no_result))
        return NULL;
    char *out = sherd__alloc(device->heap, *bytes, 1);
    if (!out) {
        sherd__device_lack(device, "out of memory for a program");
        return NULL;
    }
    if (good(device, (ptx ? cuda->ptx : cuda->cubin)(program, out), name, no_result))
        return out;
    sherd__free(device->heap, out);
    return NULL;
}

static char *compile_source(sherd__device *device, const source *s)
{
    nvrtcProgram program = NULL;
    size_t bytes = 0;
    int result =
        device->cuda.program_create(&program, s->text, s->name, HEADERS, s->header, header_name);

    if (!good(device, result, s->name, "the compiler does not start"))
        return NULL;
    char *out = compile(device, program, s) ? result_of(device, program, s->name, &bytes) : NULL;
    device->cuda.program_destroy(&program);
    if (out && s->keeps)
        sherd__kept_write(&s->key, out, bytes);
    return out;
}

/* False: it is not kept, or the driver does not take it. Nothing is noted. */
static bool load_kept(sherd__device *device, sherd__device_kernel *kernel, const source *s)
{
    const sherd__cuda *cuda = &device->cuda;
    char *binary = s->keeps ? sherd__kept_read(device->heap, &s->key) : NULL;
    bool loaded = binary && cuda->module_load(&kernel->module, binary) == 0;
    bool found = loaded && cuda->module_function(&kernel->function, kernel->module, s->name) == 0;

    if (loaded && !found)
        cuda->module_unload(kernel->module);
    if (!found)
        kernel->module = NULL;
    sherd__free(device->heap, binary);
    return found;
}

static bool load_new(sherd__device *device, sherd__device_kernel *kernel, const source *s)
{
    const sherd__cuda *cuda = &device->cuda;
    char *binary = compile_source(device, s);
    bool found = false;

    if (binary && sherd__cuda_good(device, cuda->module_load(&kernel->module, binary), s->name))
        found = sherd__cuda_good(
            device, cuda->module_function(&kernel->function, kernel->module, s->name), s->name);
    else
        kernel->module = NULL;
    sherd__free(device->heap, binary);
    return found;
}

static bool load(sherd__device *device, sherd__device_kernel *kernel, const char *name)
{
    char *text = assemble(device, &kernel->what);
    source s;

    if (!text)
        return false;
    describe(device, &s, text, name);
    bool found = load_kept(device, kernel, &s) || load_new(device, kernel, &s);
    sherd__free(device->heap, text);
    return found;
}

/* ---- those that there are -------------------------------------------------------------------- */

/*
 * By the pointers to the texts of its name, which is quick; equal texts at two places make two
 * entries, and the second points to the first.
 */
static uint64_t hash_of(const sherd__kernel *k)
{
    uint64_t types = (uint64_t)k->program << 32 | (uint64_t)k->a << 16 | (uint64_t)k->b;

    return sherd__hash_word((uintptr_t)k->family, (uintptr_t)k->kind ^ types << 20);
}

static bool is_kernel(const void *item, const void *key)
{
    const sherd__kernel *a = &((const sherd__device_kernel *)item)->what, *b = key;

    return a->family == b->family && a->kind == b->kind && a->program == b->program &&
           a->a == b->a && a->b == b->b;
}

static sherd__device_kernel *find_by_name(const sherd__device *device, const sherd__kernel *k)
{
    char name[NAME_BYTES], other[NAME_BYTES];
    sherd__device_kernel *kernel;
    size_t cursor = 0;

    name_of(name, k);
    while ((kernel = sherd__map_next(&device->kernels, &cursor))) {
        name_of(other, &kernel->what);
        if (kernel->what.program == k->program && strcmp(name, other) == 0)
            return kernel;
    }
    return NULL;
}

static void unload(sherd__device *device, sherd__device_kernel *kernel)
{
    if (kernel->module && !device->deserted)
        device->cuda.module_unload(kernel->module);
    sherd__free(device->heap, kernel);
}

static sherd__device_kernel *make_kernel(sherd__device *device, const sherd__kernel *what)
{
    sherd__device_kernel *same = find_by_name(device, what);
    sherd__device_kernel *kernel = sherd__alloc(device->heap, 1, sizeof *kernel);
    char name[NAME_BYTES];

    if (!kernel) {
        sherd__device_lack(device, "out of memory for a kernel");
        return NULL;
    }
    name_of(name, what);
    kernel->what = *what;
    kernel->of = same ? same->of : kernel;
    kernel->function = kernel->of->function;
    bool good = same || load(device, kernel, name);
    if (good && sherd__map_add(&device->kernels, hash_of(what), kernel))
        return kernel;
    if (good)
        sherd__device_lack(device, "out of memory for a kernel");
    unload(device, kernel);
    return NULL;
}

void sherd__device_free_programs(sherd__device *device)
{
    sherd__device_kernel *kernel;
    size_t cursor = 0;

    while ((kernel = sherd__map_next(&device->kernels, &cursor)))
        unload(device, kernel);
    sherd__map_clear(&device->kernels);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* More memory of a block than most kernels have must be asked for. */
static bool ask_for_shared(sherd__device *device, sherd__device_kernel *kernel, int bytes)
{
    if (!sherd__cuda_good(device,
                          device->cuda.function_set(kernel->function,
                                                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                    bytes),
                          kernel->what.family))
        return false;
    kernel->shared = bytes;
    return true;
}

void sherd__device_launch(sherd__device *device, const sherd__kernel *what, sherd__launch_grid grid,
                          const void *args, size_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed || grid.blocks <= 0)
        return;
    sherd__device_kernel *kernel =
        sherd__map_find(&device->kernels, hash_of(what), is_kernel, what);
    if (!kernel)
        kernel = make_kernel(device, what);
    if (!kernel ||
        (grid.shared > kernel->of->shared && !ask_for_shared(device, kernel->of, grid.shared)))
        return;
    if (grid.blocks > INT_MAX) {
        sherd__device_fail(device, "%s: %lld blocks are too many", what->family,
                           (long long)grid.blocks);
        return;
    }
    /* The driver only reads the arguments. */
    void *with[] = {(void *)(uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)args,
                    (void *)(uintptr_t)CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                    (void *)(uintptr_t)CU_LAUNCH_PARAM_END};
    int result =
        device->cuda.launch(kernel->function, (unsigned)grid.blocks, 1, 1, (unsigned)grid.threads,
                            1, 1, (unsigned)grid.shared, device->stream, NULL, with);
    if (result)
        sherd__cuda_good(device, result, what->family);
}
