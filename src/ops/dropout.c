/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout. Whether an element stays depends on the generator's key and the element's global index, so every
 * layout draws the same mask, and backward draws it again. A box is walked in runs of elements that are
 * neighbours in the whole tensor: one kernel call each.
 */
#include "operator.h"

typedef struct dropout_attrs {
    sherd__key key;
    double p;
} dropout_attrs;

static void drop(sherd__prepared *p, const dropout_attrs *attrs)
{
    size_t element = sherd_dtype_bytes(p->in[0]->dtype);
    sherd__walk w;

    for (sherd__walk_begin(&w, p->in[0]); sherd__walk_next(&w);) {
        size_t skip = (size_t)w.local * element;
        p->kernels->dropout(w.length, (char *)p->to[0] + skip, (const char *)p->from[0] + skip,
                            attrs->p, attrs->key, w.global);
    }
}

/* Forward and backward alike: both are linear in `t`. */
static sherd_tensor *run(sherd_tensor *t, const dropout_attrs *attrs, const sherd__backward *record)
{
    sherd__rule rule = {.name = "sherd_dropout", .linearity = SHERD__LINEAR};
    sherd__prepared p;

    sherd__rule_compile(&rule, "...->...", &t->ndim);
    if (!sherd__prepare(&p, &rule, &t, t->dtype, (const int64_t(*)[SHERD_MAX_DIMS])t->shape))
        return p.out[0];
    p.attributes = sherd__attribute_double(sherd__key_word(attrs->key), attrs->p);
    drop(&p, attrs);
    if (record)
        sherd__record_node(p.world, record, p.arg, 1, p.out, 1, attrs, sizeof *attrs);
    return sherd__finish(&p, 1);
}

static void dropout_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = run(grad_out[0], sherd__attrs(node), NULL);
}

static const sherd__backward dropout_table = {"sherd_dropout", true, dropout_back};

sherd_tensor *sherd_dropout(sherd_tensor *a, double p, sherd_generator *generator)
{
    static const char *const names[] = {"a"};
    sherd_tensor *failed;
    sherd__operands o = {dropout_table.name, names, &a, 1, 0};
    dropout_attrs attrs = {.p = p};
    bool good = sherd__enter(&o, &failed);

    /* Counted also where it fails: it may fail on one rank only, and generators must stay in step. */
    if (generator && failed)
        attrs.key =
            sherd__philox_key(sherd_world_seed(failed->world), generator->name, generator->calls++);
    if (!good)
        return failed;
    if (!generator)
        return sherd__refuse(&o, SHERD_EINVAL, "no generator");
    if (!(p >= 0 && p < 1))
        return sherd__refuse(&o, SHERD_EINVAL, "p = %g is outside of [0,1)", p);
    return p == 0 ? a : run(a, &attrs, &dropout_table);
}
