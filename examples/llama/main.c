/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continues prompts with a model of the Llama family, split over ranks: token ids in, token ids
 * out. This file is the program; each of the others is one subject of it:
 *
 *   config.c   config.json                       model.c      the model, and how it is split
 *   load.c     the files of weights              generate.c   caches, decoding, drawing
 *
 *     llama --mesh tp=2 --tokens 64 --temperature 0.7 --top-p 0.9 DIRECTORY 1,15043,29892 1,3532
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

enum { FAILED = 1, UNUSABLE = 2 }; /* exit statuses */
enum { COLUMNS = 64 };             /* that share a scale of weights of 4 bits */

static const char usage[] =
    "usage: llama [--mesh tp=2] [--tokens 32] [--temperature 0] [--top-p 1] [--seed 0] [--dtype "
    "f32|bf16|f16]\n"
    "             [--random] [--int8 | --int4] [--time] DIRECTORY IDS...\n"
    "IDS: a prompt as token ids, 1,2,3. --random: draw the weights, and read config.json only. "
    "--int8, --int4: layers have weights of 8 bits, or of 4 bits with a scale for 64 columns.\n";

typedef struct job {
    const char *directory, *mesh, *dtype;
    sampling how;
    uint64_t seed;
    bool random, int8, int4, time;
    prompts p;
} job;

static int say(const sherd_world *world, const char *text, int status)
{
    if (!world || sherd_world_rank(world) == 0)
        fprintf(stderr, "llama: %s\n", text);
    return status;
}

/* ---- arguments ------------------------------------------------------------------------------ */

static int64_t read_ids(const char *text, int32_t *out)
{
    int64_t n = 0;

    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        long id = strtol(text, &end, 10);
        if (end == text || id < 0 || id > INT32_MAX || (*end && *end != ','))
            return 0;
        if (out)
            out[n] = (int32_t)id;
        n++;
    }
    return n;
}

static bool read_prompts(prompts *p, char **text, int count)
{
    p->batch = count;
    for (int b = 0; b < count; b++) {
        int64_t n = read_ids(text[b], NULL);
        if (n == 0)
            return false;
        p->longest = n > p->longest ? n : p->longest;
    }
    p->ids = calloc((size_t)(count * p->longest) + 1, sizeof *p->ids);
    p->count = calloc((size_t)count + 1, sizeof *p->count);
    for (int b = 0; b < count && p->ids && p->count; b++)
        p->count[b] = (int32_t)read_ids(text[b], p->ids + b * p->longest);
    return count > 0 && p->ids && p->count;
}

static bool parse(job *j, int argc, char **argv)
{
    int i = 1;

    *j = (job){.mesh = "tp=1", .how.top_p = 1, .p.tokens = 32};
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        const char *name = argv[i] + 2, *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool *flag = strcmp(name, "random") == 0 ? &j->random
                     : strcmp(name, "int8") == 0 ? &j->int8
                     : strcmp(name, "int4") == 0 ? &j->int4
                     : strcmp(name, "time") == 0 ? &j->time
                                                 : NULL;
        if (flag) {
            *flag = true;
            continue;
        }
        if (!value)
            return false;
        i++;
        if (strcmp(name, "mesh") == 0)
            j->mesh = value;
        else if (strcmp(name, "tokens") == 0)
            j->p.tokens = atoll(value);
        else if (strcmp(name, "temperature") == 0)
            j->how.temperature = atof(value);
        else if (strcmp(name, "top-p") == 0)
            j->how.top_p = atof(value);
        else if (strcmp(name, "seed") == 0)
            j->seed = strtoull(value, NULL, 10);
        else if (strcmp(name, "dtype") == 0)
            j->dtype = value;
        else
            return false;
    }
    j->directory = i < argc ? argv[i] : NULL;
    return j->directory && j->p.tokens > 0 && !(j->int8 && j->int4) && j->how.top_p > 0 &&
           read_prompts(&j->p, argv + i + 1, argc - i - 1);
}

/* ---- a rank --------------------------------------------------------------------------------- */

static void show(const job *j, const int32_t *out)
{
    for (int64_t b = 0; b < j->p.batch; b++)
        for (int64_t i = 0; i < j->p.tokens; i++) {
            int32_t token = out[b * j->p.tokens + i];
            if (token >= 0)
                printf("%s%d", i ? "," : "", (int)token);
            if (token < 0 || i + 1 == j->p.tokens) {
                printf("\n");
                break;
            }
        }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sherd_status run(const job *j, llama *m)
{
    int32_t *out = malloc((size_t)(j->p.batch * j->p.tokens) * sizeof *out);
    timing took = {0};
    double loaded = seconds();

    if (!out)
        sherd_world_fail(m->world, SHERD_ENOMEM, "out of memory for tokens");
    sherd_status status = sherd_world_check(m->world);
    if (!status && !j->random)
        status = llama_load(m, j->directory);
    if (!status && (j->int8 || j->int4))
        status = sherd_module_quantize(sherd_module_find(m->root, "model.layers"), j->int4 ? 4 : 8,
                                       j->int4 ? COLUMNS : 0);
    loaded = seconds() - loaded;
    if (!status)
        status = generate(m, &j->p, &j->how, out, &took);
    if (!status && sherd_world_rank(m->world) == 0) {
        show(j, out);
        if (j->time)
            fprintf(stderr, "loaded in %.2f s, prefill %.1f ms, %.2f ms a token, %.0f MB a rank\n",
                    loaded, 1e3 * took.prefill,
                    1e3 * took.decode / (double)(took.steps ? took.steps : 1),
                    1e-6 * (double)sherd_world_memory(m->world).live_bytes);
    }
    free(out);
    return status;
}

static bool choose_dtype(config *c, const char *name)
{
    for (int d = SHERD_F32; name && d <= SHERD_F16; d++)
        if (strcmp(name, sherd_dtype_name((sherd_dtype)d)) == 0) {
            c->dtype = (sherd_dtype)d;
            return true;
        }
    return !name;
}

static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    char path[1024], error[LINE_BYTES];
    const sherd_mesh *mesh;
    llama m = {0};
    config c;

    snprintf(path, sizeof path, "%s/config.json", j->directory);
    if (!config_read(&c, path, error))
        return say(world, error, UNUSABLE);
    if (!choose_dtype(&c, j->dtype))
        return say(world, "no such dtype", UNUSABLE);
    sherd_status status = sherd_mesh_parse(&mesh, world, j->mesh);
    if (!status)
        status = llama_create(&m, world, &c, mesh, j->random);
    if (!status)
        status = run(j, &m);
    llama_destroy(&m);
    return status ? say(world, sherd_world_error(world), FAILED) : 0;
}

/* As many ranks as the mesh has: "dp=2,tp=2" is 4. */
static int ranks_of(const char *mesh)
{
    sherd_world *paper;
    const sherd_mesh *made;
    int ranks = 0;

    if (sherd_world_paper(&paper, SHERD_MAX_RANKS))
        return 0;
    if (sherd_mesh_parse(&made, paper, mesh) == SHERD_OK)
        ranks = (int)sherd_mesh_ranks(made);
    if (sherd_world_close(paper))
        ranks = 0;
    return ranks;
}

int main(int argc, char **argv)
{
    char error[SHERD_ERROR_BYTES] = "";
    int exit_status = FAILED;
    job j;

    if (!parse(&j, argc, argv))
        return fputs(usage, stderr), UNUSABLE;
    const sherd_world_options options = {.ranks = ranks_of(j.mesh), .seed = j.seed, .error = error};
    if (options.ranks == 0)
        return say(NULL, "no such mesh", UNUSABLE);
    sherd_status status = sherd_spawn(&exit_status, &options, body, &j);
    if (status && status != SHERD_EPEER)
        say(NULL, error, FAILED);
    free(j.p.ids);
    free(j.p.count);
    return status && !exit_status ? FAILED : exit_status;
}
