/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators by name, timed as lines on stdin say: the half of bench/compare_operators.py that is
 * not PyTorch. Ranks are threads. Lines, with words between blanks:
 *
 *     case                                       forget what there was
 *     operand DTYPE GRAD LAYOUT COPIES NDIM N.. FILE
 *                                                elements from a file, or that file times 1.. for
 *                                                copies; LAYOUT "S(0)", or "-" for a plain one
 *     apply OPERATOR COUNT I.. (FIELD V..)..     of these operands (-1: none), as a step. Operand
 *                                                32 + 4 s + j is result j of step s; FIELD is a
 *                                                name with '=' before it and '_' for blanks
 *     time SAMPLES CALLS DY                      seconds of a call: the least CPU time of rank 0,
 *                                                the least time of all ranks. DY: the operand that
 *                                                is the gradient of result 0; -1: forward only
 *     ready                                      say so, when all before it is done
 *     write DY PREFIX                            results, then gradients, as f64 in files
 *
 *     bench/operators [RANKS]
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <sherd.h>

#include "command_line.h"
#include "timing.h"

enum { LINE = 4096, MOST_STEPS = 4, MOST_COPIES = 4, MOST_WORDS = 128 };

/* What is not one operator with its attributes: a function by its name. */
typedef struct function {
    const char *name;
    sherd_tensor *(*run)(sherd_tensor **in);
} function;

typedef struct step {
    const sherd_op *op;
    const function *function; /* instead of op */
    int count, in[SHERD_MAX_OPERANDS];
    char attributes[SHERD_ATTRIBUTE_BYTES];
} step;

typedef struct job {
    int64_t ranks;
    pthread_barrier_t met;
    char line[LINE]; /* of all ranks; empty: the end */
} job;

/* What one rank has of a case. */
typedef struct trial {
    sherd_world *world;
    const sherd_mesh *mesh;
    sherd_tensor *operand[MOST_COPIES][SHERD_MAX_OPERANDS];
    bool grad[SHERD_MAX_OPERANDS];
    int operands, copies, steps;
    step step[MOST_STEPS];
} trial;

static sherd_tensor *nonzero(sherd_tensor **in)
{
    return sherd_nonzero(in[0]);
}

static sherd_tensor *masked_select(sherd_tensor **in)
{
    return sherd_masked_select(in[0], in[1]);
}

static sherd_tensor *scatter_amax(sherd_tensor **in)
{
    return sherd_scatter_reduce(in[0], 0, in[1], in[2], SHERD_MAX, true);
}

static sherd_tensor *unique(sherd_tensor **in)
{
    return sherd_unique(in[0], NULL, NULL);
}

static sherd_tensor *multinomial(sherd_tensor **in)
{
    sherd_generator g = sherd_generator_named("bench");

    return sherd_multinomial(in[0], 1, false, &g);
}

static sherd_tensor *random_like(const sherd_tensor *t, sherd_distribution d)
{
    sherd_generator g = sherd_generator_named("bench");
    sherd_world *world = sherd_tensor_world(t);

    return sherd_random(world, sherd_tensor_dtype(t), sherd_tensor_shape(t), sherd_tensor_ndim(t),
                        d, &g);
}

static sherd_tensor *uniform(sherd_tensor **in)
{
    return random_like(in[0], sherd_uniform(0, 1));
}

static sherd_tensor *normal(sherd_tensor **in)
{
    return random_like(in[0], sherd_normal(0, 1));
}

static sherd_tensor *copy_from(sherd_tensor **in)
{
    return sherd_copy_from(in[0], in[1]);
}

static sherd_tensor *add_to(sherd_tensor **in)
{
    return sherd_add_to(in[0], in[1]);
}

static sherd_tensor *add_scaled_to(sherd_tensor **in)
{
    return sherd_add_scaled_to(in[0], in[1], 0.3);
}

static sherd_tensor *scale_by(sherd_tensor **in)
{
    return sherd_scale_by(in[0], 1);
}

static sherd_tensor *fill(sherd_tensor **in)
{
    return sherd_fill(in[0], 0.5);
}

static const function functions[] = {{"@nonzero", nonzero},
                                     {"@masked_select", masked_select},
                                     {"@scatter_amax", scatter_amax},
                                     {"@unique", unique},
                                     {"@multinomial", multinomial},
                                     {"@copy_from", copy_from},
                                     {"@add_to", add_to},
                                     {"@add_scaled_to", add_scaled_to},
                                     {"@scale_by", scale_by},
                                     {"@fill", fill},
                                     {"@uniform", uniform},
                                     {"@normal", normal}};

static const function *find_function(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sherd_dtype dtype_of(const char *name)
{
    for (int d = SHERD_DTYPE_NONE + 1; sherd_dtype_bytes((sherd_dtype)d) > 0; d++)
        if (strcmp(sherd_dtype_name((sherd_dtype)d), name) == 0)
            return (sherd_dtype)d;
    return SHERD_DTYPE_NONE;
}

static void *read_file(const char *name, size_t bytes)
{
    FILE *f = fopen(name, "rb");
    void *data = malloc(bytes + 1);

    if (!f || !data || fread(data, 1, bytes, f) != bytes) {
        fprintf(stderr, "operators: no %zu bytes in %s\n", bytes, name);
        exit(1);
    }
    fclose(f);
    return data;
}

static void take_operand(trial *c, char **word)
{
    sherd_dtype dtype = dtype_of(word[1]);
    int64_t shape[SHERD_MAX_DIMS], count = 1;
    int ndim = atoi(word[5]), i = c->operands++;
    const sherd_layout *layout = NULL;

    for (int d = 0; d < ndim; d++)
        count *= shape[d] = atoll(word[6 + d]);
    void *data = read_file(word[6 + ndim], (size_t)count * (size_t)sherd_dtype_bytes(dtype));
    c->copies = atoi(word[4]);
    c->grad[i] = atoi(word[2]) != 0;
    for (int k = 0; k < c->copies; k++) {
        sherd_tensor *t = sherd_mark_equal(sherd_from_data(c->world, dtype, shape, ndim, data));
        if (word[3][0] != '-' &&
            sherd_layout_parse_placements(&layout, c->mesh, ndim, shape, word[3], NULL) == SHERD_OK)
            t = sherd_distribute(t, layout, -1);
        c->operand[k][i] = c->grad[i] ? sherd_require_grad(t, true) : t;
    }
    free(data);
}

static void set_field(const sherd_op_field *field, int i, const char *word, char *attributes)
{
    double d = strtod(word, NULL);
    int64_t wide = strtoll(word, NULL, 10);
    int number = (int)wide;
    uint32_t bits = (uint32_t)wide;
    bool yes = wide != 0;
    const struct {
        const void *from;
        size_t bytes;
    } value[] = {
        [SHERD_FIELD_INT] = {&number, sizeof number}, [SHERD_FIELD_INT64] = {&wide, sizeof wide},
        [SHERD_FIELD_DOUBLE] = {&d, sizeof d},        [SHERD_FIELD_BOOL] = {&yes, sizeof yes},
        [SHERD_FIELD_UINT32] = {&bits, sizeof bits},  [SHERD_FIELD_BYTE] = {&number, 1}};

    memcpy(attributes + field->offset + (size_t)i * value[field->kind].bytes,
           value[field->kind].from, value[field->kind].bytes);
}

/* Names of fields may have blanks, which are '_' in a line; behind '=' come those of choices. */
static bool is_named(const char *name, const char *word)
{
    for (; *word && (*name == *word || (*name == ' ' && *word == '_')); name++)
        word++;
    return !*word && (!*name || *name == '=');
}

static void take_step(trial *c, char **word, int words)
{
    step *s = &c->step[c->steps++];
    const sherd_op_field *field = NULL;

    *s = (step){.op = sherd_op_find(c->world, word[1]),
                .function = find_function(word[1]),
                .count = atoi(word[2])};
    if (!s->op && !s->function) {
        fprintf(stderr, "operators: no operator %s\n", word[1]);
        exit(1);
    }
    for (int i = 0; i < s->count; i++)
        s->in[i] = atoi(word[3 + i]);
    for (int w = 3 + s->count, i = 0; w < words; w++) {
        if (word[w][0] != '=') {
            if (field && field->kind == SHERD_FIELD_BYTE && field->count > 1)
                strcpy(s->attributes + field->offset, word[w]);
            else if (field)
                set_field(field, i++, word[w], s->attributes);
            continue;
        }
        i = 0;
        for (field = s->op->field; field->name && !is_named(field->name, word[w] + 1);)
            field++;
        if (!field->name) {
            fprintf(stderr, "operators: %s has no %s\n", word[1], word[w] + 1);
            exit(1);
        }
    }
}

/* All steps on one copy of the operands; results of the last. */
static void run(trial *c, int copy, int dy, sherd_tensor **y)
{
    sherd_tensor *made[MOST_STEPS][SHERD_MAX_RESULTS] = {{NULL}};

    for (int s = 0; s < c->steps; s++) {
        sherd_tensor *in[SHERD_MAX_OPERANDS];
        for (int i = 0; i < c->step[s].count; i++) {
            int k = c->step[s].in[i], r = k - SHERD_MAX_OPERANDS;
            in[i] = k < 0   ? NULL
                    : r < 0 ? c->operand[copy][k]
                            : made[r / SHERD_MAX_RESULTS][r % SHERD_MAX_RESULTS];
        }
        if (c->step[s].function)
            made[s][0] = c->step[s].function->run(in);
        else
            sherd_apply_all(made[s], c->step[s].op, in, c->step[s].count, c->step[s].attributes);
    }
    memcpy(y, made[c->steps - 1], sizeof made[0]);
    if (dy >= 0)
        sherd_backward_with(y, &c->operand[copy][dy], 1, NULL);
}

static void clear(trial *c, int copy)
{
    for (int i = 0; i < c->operands; i++)
        if (c->grad[i])
            sherd_clear_grad(c->operand[copy][i]);
}

static void take_times(trial *c, job *j, char **word)
{
    int samples = atoi(word[1]), calls = atoi(word[2]), dy = atoi(word[3]);
    double least = 1e9, least_cpu = 1e9;
    sherd_tensor *y[SHERD_MAX_RESULTS];

    for (int i = 0; i < samples; i++) {
        pthread_barrier_wait(&j->met);
        double start = seconds(), cpu = cpu_seconds();
        for (int k = 0; k < calls; k++) {
            int copy = k % c->copies;
            sherd_scope_begin(c->world);
            run(c, copy, dy, y);
            clear(c, copy);
            sherd_scope_end(c->world);
        }
        cpu = (cpu_seconds() - cpu) / calls;
        pthread_barrier_wait(&j->met);
        double wall = (seconds() - start) / calls;
        least_cpu = cpu < least_cpu ? cpu : least_cpu;
        least = wall < least ? wall : least;
    }
    if (sherd_world_rank(c->world) == 0)
        printf("%.9g %.9g\n", least_cpu, least);
}

static void write_one(trial *c, sherd_tensor *t, const char *prefix, int i)
{
    char name[LINE];
    sherd_tensor *whole = sherd_cast(sherd_full(t), SHERD_F64);
    const double *numbers = sherd_tensor_read(whole);

    if (sherd_world_rank(c->world) != 0 || !numbers)
        return;
    snprintf(name, sizeof name, "%s%d", prefix, i);
    FILE *f = fopen(name, "wb");
    if (f) {
        fwrite(numbers, sizeof *numbers, (size_t)sherd_tensor_count(whole), f);
        fclose(f);
    }
}

/* How many files there are, after which the results come the gradients. */
static void write_results(trial *c, char **word)
{
    sherd_tensor *y[SHERD_MAX_RESULTS] = {NULL};
    int dy = atoi(word[1]), files = 0;

    sherd_scope_begin(c->world);
    run(c, 0, dy, y);
    for (int i = 0; i < SHERD_MAX_RESULTS && y[i]; i++)
        write_one(c, y[i], word[2], files++);
    int results = files;
    for (int i = 0; i < c->operands && dy >= 0; i++)
        if (c->grad[i])
            write_one(c, sherd_grad(c->operand[0][i]), word[2], files++);
    clear(c, 0);
    sherd_scope_end(c->world);
    bool good = sherd_world_check(c->world) == SHERD_OK;
    if (sherd_world_rank(c->world) == 0)
        printf("%d %d %s\n", results, files, good ? "" : sherd_world_error(c->world));
}

static void obey(trial *c, job *j, char **word, int words)
{
    if (strcmp(word[0], "case") == 0) {
        sherd_scope_end(c->world);
        *c = (trial){.world = c->world, .mesh = c->mesh};
        sherd_scope_begin(c->world);
    } else if (strcmp(word[0], "operand") == 0) {
        take_operand(c, word);
    } else if (strcmp(word[0], "apply") == 0) {
        take_step(c, word, words);
    } else if (strcmp(word[0], "time") == 0) {
        take_times(c, j, word);
    } else if (strcmp(word[0], "ready") == 0 && sherd_world_rank(c->world) == 0) {
        puts("ready");
    } else if (strcmp(word[0], "write") == 0) {
        write_results(c, word);
    }
    fflush(stdout);
}

static int body(sherd_world *world, void *payload)
{
    job *j = payload;
    trial c = {.world = world};

    if (sherd_mesh_create(&c.mesh, world, 1, &j->ranks, NULL, NULL) != SHERD_OK)
        return 1;
    sherd_scope_begin(world);
    for (;;) {
        char line[LINE], *word[MOST_WORDS], *rest = line;
        int words = 0;
        if (sherd_world_rank(world) == 0 && !fgets(j->line, LINE, stdin))
            j->line[0] = 0;
        pthread_barrier_wait(&j->met);
        memcpy(line, j->line, LINE);
        pthread_barrier_wait(&j->met);
        while (words < MOST_WORDS && (word[words] = strtok_r(rest, " \n", &rest)))
            words++;
        if (words == 0)
            break;
        obey(&c, j, word, words);
    }
    sherd_scope_end(world);
    return sherd_world_check(world) == SHERD_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    job j = {.ranks = 1};
    const bench_option options[] = {{NULL, "RANKS", .number = &j.ranks, .most = SHERD_MAX_RANKS}};
    int exit_status = 1;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    pthread_barrier_init(&j.met, NULL, (unsigned)j.ranks);
    const sherd_world_options world = {.ranks = (int)j.ranks, .as = SHERD_THREADS};
    return sherd_spawn(&exit_status, &world, body, &j) == SHERD_OK ? exit_status : 1;
}
