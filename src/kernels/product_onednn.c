/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by oneDNN, which generates code for the machine: 80 to 95 % of peak from 64^3 up.
 * By its matmul primitives, kept by shape, where they win; a kept one costs 0.4 us above the
 * product itself: the memory objects are made with it, and only told where the arrays are. Else, of
 * f32, by dnnl_sgemm: 0.1 us a call; plain loops win below 8^3 only, which is not worth another
 * path.
 */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL

#include "base/num.h"
#include "onednn.h"
#include "sums.h"

enum { A, B, BIAS, C, ARRAYS };

typedef struct kept {
    sherd__engine *engine;
    dnnl_primitive_t primitive; /* NULL: oneDNN does not do this one */
    dnnl_memory_t memory[ARRAYS];
} kept;

static void destroy(void *thing)
{
    kept *k = thing;
    const sherd__dnnl *dnnl = &k->engine->dnnl;

    for (int i = 0; i < ARRAYS; i++)
        dnnl->memory_destroy(k->memory[i]);
    dnnl->primitive_destroy(k->primitive);
    sherd__free(k->engine->heap, k);
}

static int64_t a_row_of(const sherd__product *p)
{
    return p->a_row ? p->a_row : p->ta ? p->m : p->k;
}

static int64_t b_row_of(const sherd__product *p)
{
    return p->b_row ? p->b_row : p->tb ? p->k : p->n;
}

/* A product that is being described to oneDNN. */
typedef struct making {
    sherd__engine *engine;
    const sherd__product *product;
    kept *kept;
    sherd__making matmul;
    sherd__lying lying[ARRAYS];
    int lie; /* how many of `lying` are set */
} making;

static bool describe(making *m)
{
    const sherd__product *p = m->product;
    const struct {
        dnnl_dims_t size, stride; /* two of them; oneDNN's declarations want room for all */
        sherd_dtype dtype;
    } array[ARRAYS] = {
        [A] = {{p->m, p->k}, {p->ta ? 1 : a_row_of(p), p->ta ? a_row_of(p) : 1}, p->dtype},
        [B] = {{p->k, p->n}, {p->tb ? 1 : b_row_of(p), p->tb ? b_row_of(p) : 1}, p->dtype},
        [BIAS] = {{1, p->n}, {p->n, 1}, p->dtype},
        [C] = {{p->m, p->n}, {p->c_row ? p->c_row : p->n, 1}, p->result},
    };

    for (m->lie = 0; m->lie < ARRAYS; m->lie++)
        if (!sherd__lie(m->engine, &m->lying[m->lie], 2, array[m->lie].size, array[m->lie].stride,
                        array[m->lie].dtype))
            return false;
    return true;
}

static int make_all(void *context)
{
    making *m = context;
    sherd__engine *e = m->engine;
    const sherd__product *p = m->product;

    if (!describe(m) || (p->adds && !sherd__sum_after(e, &m->matmul)) ||
        !sherd__describe_matmul(e, &m->matmul, &m->lying[A], &m->lying[B],
                                p->bias ? &m->lying[BIAS] : NULL, &m->lying[C]))
        return false;
    for (int i = 0; i < ARRAYS; i++)
        if (!sherd__good(e, e->dnnl.memory_create(&m->kept->memory[i], sherd__ref_to(&m->lying[i]),
                                                  e->engine, DNNL_MEMORY_NONE)))
            return false;
    return sherd__good(e, e->dnnl.primitive_create(&m->kept->primitive, m->matmul.desc));
}

static sherd__done make(sherd__engine *e, const sherd__product *p, kept *k)
{
    making m = {.engine = e, .product = p, .kept = k};
    sherd__done done = sherd__onednn_try(e, SHERD__ONEDNN_MAKES, make_all, &m);

    sherd__make_no_more(&e->dnnl, &m.matmul);
    while (m.lie-- > 0)
        sherd__lie_no_more(&e->dnnl, &m.lying[m.lie]);
    return done;
}

/* The primitive of a shape, made if there is none yet; NULL: out of memory, and nothing is kept. */
static kept *find(sherd__engine *e, const sherd__product *p)
{
    const int64_t key[] = {
        p->m,     p->n,
        p->k,     p->a_row,
        p->b_row, p->c_row,
        p->dtype, (int64_t)p->result | p->ta << 8 | p->tb << 9 | p->bias << 10 | p->adds << 11};
    bool fresh;
    kept *k = sherd__shapes_take(&e->shapes, key, sizeof key, sizeof *k, destroy, &fresh);

    if (fresh) {
        k->engine = e;
        if (make(e, p, k) == SHERD__NO_MEMORY) {
            sherd__shapes_drop(&e->shapes, key, sizeof key);
            return NULL;
        }
    }
    return k;
}

/*
 * Where the primitive wins, as measured: see docs/decisions/037. A function of the shape alone,
 * because ranks that compute the same must get the same bits.
 */
static bool is_worth_it(const sherd__engine *e, const sherd__product *p)
{
    enum { FEW = 1 << 12, SMALL = 1 << 16, PAGE = 1024, NARROW = 512, SHORT = 64 };
    int64_t columns = p->n * p->k;

    /* oneDNN 2.6.3 dies of an illegal instruction at k = 63 on AMX, for some m and n */
    if (p->dtype == SHERD_BF16)
        return e->has_bf16 && (p->k % 2 == 0 || p->k == 1 || p->k > SHORT);
    if (p->dtype != SHERD_F32 || p->m == 1 || p->m * columns < FEW)
        return false;
    /* b fits into the second cache; or sgemm would pack a down columns that lie pages apart, in the
     * same cache sets */
    return columns <= SMALL || (p->ta && p->m % PAGE == 0 && p->n <= NARROW);
}

/* A product to be made now: its arrays, and what makes it, if that is a primitive. */
typedef struct task {
    sherd__engine *engine;
    const sherd__product *product;
    const void *data[ARRAYS];
    const kept *kept;
} task;

/* dnnl_sgemm is row-major, takes the leading dimension as the row stride, and knows no bias. */
static int run_sgemm(void *context)
{
    const task *t = context;
    const sherd__product *p = t->product;

    return sherd__good(t->engine, t->engine->dnnl.sgemm(
                                      p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1,
                                      t->data[A], a_row_of(p), t->data[B], b_row_of(p), p->adds,
                                      (void *)(uintptr_t)t->data[C], p->c_row ? p->c_row : p->n));
}

static sherd__done multiply_f32(sherd__engine *e, const sherd__product *p, void *c, const void *a,
                                const void *b)
{
    if (p->dtype != SHERD_F32 || p->result != SHERD_F32 || p->bias)
        return SHERD__CANNOT;
    sherd__done started = sherd__engine_start(e);
    return started == SHERD__DONE
               ? sherd__onednn_try(e, SHERD__ONEDNN_RUNS, run_sgemm,
                                   &(task){e, p, {[A] = a, [B] = b, [C] = c}, NULL})
               : started;
}

enum { PART = 1024 }; /* terms of a product of vectors that are added in f32 */

/* A product of vectors takes the time of reading them; in dnnl_sgemm, which has one running sum,
 * six times that. */
static bool is_dot(const sherd__product *p)
{
    return p->dtype == SHERD_F32 && p->result == SHERD_F32 && p->m == 1 && p->n == 1 &&
           (!p->ta || a_row_of(p) == 1) && (p->tb || b_row_of(p) == 1) && p->k > PART && !p->bias;
}

static float dot_part(int64_t k, const float *a, const float *b)
{
    enum { LANES = 16 };
    float lane[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= k; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i < k; i++, j++)
        lane[j] += a[i] * b[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

static void dot(const sherd__product *p, float *c, const float *a, const float *b)
{
    double total = p->adds ? (double)*c : 0;

    for (int64_t i = 0; i < p->k; i += PART)
        total += (double)dot_part(sherd__min(PART, p->k - i), a + i, b + i);
    *c = (float)total;
}

enum { FEW_PART = 512, FEW_TERMS = 1 << 12 }; /* as PART; fewer than these are made at once */

static bool is_few_sums(const sherd__product *p)
{
    return p->dtype == SHERD_F32 && p->k > FEW_TERMS && p->m <= SHERD__LONG_SUMS &&
           p->n <= SHERD__LONG_SUMS && p->m * p->n <= SHERD__LONG_SUMS;
}

/* A few long sums (see sums.h). Without a part nothing was written. */
static sherd__done multiply_long(sherd__engine *e, const sherd__product *p, float *c,
                                 const float *a, const float *b)
{
    int64_t a_step = p->ta ? a_row_of(p) : 1, b_step = p->tb ? 1 : b_row_of(p);
    int64_t c_row = p->c_row ? p->c_row : p->n;
    sherd__product part = *p;
    double total[SHERD__LONG_SUMS] = {0};
    float some[SHERD__LONG_SUMS];

    part.a_row = a_row_of(p);
    part.b_row = b_row_of(p);
    part.c_row = 0;
    part.adds = false;
    for (int64_t at = 0; at < p->k; at += FEW_PART) {
        part.k = sherd__min(FEW_PART, p->k - at);
        sherd__done done = multiply_f32(e, &part, some, a + at * a_step, b + at * b_step);
        if (done != SHERD__DONE)
            return done;
        for (int64_t i = 0; i < p->m * p->n; i++)
            total[i] += (double)some[i];
    }
    for (int64_t i = 0; i < p->m * p->n; i++) {
        float *to = c + i / p->n * c_row + i % p->n;
        *to = (float)(total[i] + (p->adds ? (double)*to : 0));
    }
    return SHERD__DONE;
}

static int run_kept(void *context)
{
    static const int argument[ARRAYS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                         DNNL_ARG_DST};
    const task *t = context;
    sherd__engine *e = t->engine;
    const kept *k = t->kept;
    dnnl_exec_arg_t list[ARRAYS];
    int count = 0;

    for (int i = 0; i < ARRAYS; i++) {
        if (i == BIAS && !t->product->bias)
            continue;
        if (!sherd__good(
                e, e->dnnl.memory_set_data_handle(k->memory[i], (void *)(uintptr_t)t->data[i])))
            return false;
        list[count++] = (dnnl_exec_arg_t){argument[i], k->memory[i]};
    }
    return sherd__good(e, e->dnnl.primitive_execute(k->primitive, e->stream, count, list)) &&
           sherd__good(e, e->dnnl.stream_wait(e->stream));
}

static sherd__done multiply_kept(sherd__engine *e, const sherd__product *p, void *c, const void *a,
                                 const void *b, const void *bias)
{
    sherd__done started = sherd__engine_start(e);

    if (started != SHERD__DONE)
        return started;
    kept *k = find(e, p);
    if (!k)
        return SHERD__NO_MEMORY;
    return k->primitive ? sherd__onednn_try(e, SHERD__ONEDNN_RUNS, run_kept,
                                            &(task){e, p, {a, b, bias, c}, k})
                        : SHERD__CANNOT;
}

bool sherd__onednn_multiplies(sherd__engine *e, const sherd__product *p)
{
    bool primitive = is_worth_it(e, p), single = p->dtype == SHERD_F32 && p->result == SHERD_F32;

    return p->m > 0 && p->n > 0 && p->k > 0 && (primitive || (single && !p->bias)) &&
           sherd__engine_start(e) != SHERD__CANNOT;
}

sherd__done sherd__product_onednn(sherd__engine *e, const sherd__product *p, void *c, const void *a,
                                  const void *b, const void *bias)
{
    if (p->m < 1 || p->n < 1 || p->k < 1)
        return SHERD__CANNOT;
    if (is_dot(p)) {
        dot(p, c, a, b);
        return SHERD__DONE;
    }
    if (is_few_sums(p))
        return multiply_long(e, p, c, a, b);
    sherd__done done = is_worth_it(e, p) ? multiply_kept(e, p, c, a, b, bias) : SHERD__CANNOT;
    return done == SHERD__CANNOT ? multiply_f32(e, p, c, a, b) : done;
}

#endif
