/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by oneDNN's matmul primitives, kept by shape. A kept one costs 0.4 us above the product itself: the
 * memory objects are made with it, and only told where the arrays are.
 */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL

#include "onednn.h"

enum { A, B, BIAS, C, ARRAYS };

typedef struct kept {
    sherd__heap *heap;
    dnnl_primitive_t primitive; /* NULL: oneDNN does not do this one */
    dnnl_memory_t memory[ARRAYS];
} kept;

static void destroy(void *thing)
{
    kept *k = thing;

    for (int i = 0; i < ARRAYS; i++)
        dnnl_memory_destroy(k->memory[i]);
    dnnl_primitive_destroy(k->primitive);
    sherd__free(k->heap, k);
}

/* Arrays that are not there are left out. */
static bool describe(sherd__lying *lying, int *made, const sherd__product *p)
{
    int64_t a_row = p->a_row ? p->a_row : p->ta ? p->m : p->k;
    int64_t b_row = p->b_row ? p->b_row : p->tb ? p->k : p->n;
    const struct {
        dnnl_dims_t size, stride; /* two of them; oneDNN's declarations want room for all */
        sherd_dtype dtype;
    } array[ARRAYS] = {
        [A] = {{p->m, p->k}, {p->ta ? 1 : a_row, p->ta ? a_row : 1}, p->dtype},
        [B] = {{p->k, p->n}, {p->tb ? 1 : b_row, p->tb ? b_row : 1}, p->dtype},
        [BIAS] = {{1, p->n}, {p->n, 1}, p->dtype},
        [C] = {{p->m, p->n}, {p->c_row ? p->c_row : p->n, 1}, p->result},
    };

    for (*made = 0; *made < ARRAYS; ++*made)
        if (!sherd__lie(&lying[*made], 2, array[*made].size, array[*made].stride,
                        array[*made].dtype))
            return false;
    return true;
}

/* False: oneDNN does not do it; then there is no primitive. */
static bool make(sherd__engine *e, const sherd__product *p, kept *k)
{
    sherd__lying lying[ARRAYS];
    dnnl_primitive_desc_t desc = NULL;
    int made;
    bool good = describe(lying, &made, p) &&
                sherd__describe_matmul(&desc, e->engine, &lying[A], &lying[B],
                                       p->bias ? &lying[BIAS] : NULL, &lying[C], p->adds) &&
                sherd__good(dnnl_primitive_create(&k->primitive, desc));

    for (int i = 0; i < ARRAYS && good; i++)
        good = sherd__good(dnnl_memory_create(&k->memory[i], sherd__ref_to(&lying[i]), e->engine,
                                              DNNL_MEMORY_NONE));
    if (!good && k->primitive) {
        dnnl_primitive_destroy(k->primitive);
        k->primitive = NULL;
    }
    dnnl_primitive_desc_destroy(desc);
    while (made-- > 0)
        sherd__lie_no_more(&lying[made]);
    return good;
}

/* The primitive of a shape, made if there is none yet; NULL: out of memory. */
static kept *find(sherd__engine *e, const sherd__product *p)
{
    const int64_t key[] = {
        p->m,     p->n,
        p->k,     p->a_row,
        p->b_row, p->c_row,
        p->dtype, (int64_t)p->result | p->ta << 8 | p->tb << 9 | p->bias << 10 | p->adds << 11};
    kept *k = sherd__shapes_find(&e->shapes, key, sizeof key);

    if (k)
        return k;
    k = sherd__alloc(e->heap, 1, sizeof *k);
    if (!k)
        return NULL;
    k->heap = e->heap;
    make(e, p, k);
    if (!sherd__shapes_add(&e->shapes, key, sizeof key, k, destroy)) {
        destroy(k);
        return NULL;
    }
    return k;
}

/*
 * Where the primitive wins, as measured: see docs/decisions/037. A function of the shape alone, because ranks that compute
 * the same must get the same bits.
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
    /* b fits into the second cache; or sgemm would pack a down columns that lie pages apart, in the same cache sets */
    return columns <= SMALL || (p->ta && p->m % PAGE == 0 && p->n <= NARROW);
}

sherd__done sherd__product_onednn(sherd__engine *e, const sherd__product *p, void *c, const void *a,
                                  const void *b, const void *bias)
{
    static const int argument[ARRAYS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                         DNNL_ARG_DST};
    const void *data[ARRAYS] = {a, b, bias, c};
    dnnl_exec_arg_t list[ARRAYS];
    int count = 0;

    if (p->m < 1 || p->n < 1 || p->k < 1 || !is_worth_it(e, p) || !sherd__engine_start(e))
        return SHERD__CANNOT;
    kept *k = find(e, p);
    if (!k)
        return SHERD__NO_MEMORY;
    if (!k->primitive)
        return SHERD__CANNOT;
    for (int i = 0; i < ARRAYS; i++) {
        if (i == BIAS && !p->bias)
            continue;
        if (!sherd__good(dnnl_memory_set_data_handle(k->memory[i], (void *)(uintptr_t)data[i])))
            return SHERD__CANNOT;
        list[count++] = (dnnl_exec_arg_t){argument[i], k->memory[i]};
    }
    return sherd__good(dnnl_primitive_execute(k->primitive, e->stream, count, list)) &&
                   sherd__good(dnnl_stream_wait(e->stream))
               ? SHERD__DONE
               : SHERD__CANNOT;
}

#endif
