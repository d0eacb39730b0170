/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as text. The rank that writes gets the values that are shown, and no others; it formats
 * them twice, first to measure the columns. Lines are made one at a time, so a text of any length
 * takes no memory.
 */
#include "sherd/print.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/text.h"
#include "kernels/cast.h"
#include "tensor/excerpt.h"
#include "tensor/state.h"
#include "world/doing.h"

enum { COLUMNS = 80, DIGITS = 6, MOST_DIGITS = 17, THRESHOLD = 1000, EDGE = 3 };
enum { VALUE_BYTES = 40, INDEX_BYTES = SHERD_MAX_DIMS * 20 + 3 };

typedef struct printer {
    FILE *file; /* or a text: */
    char *out;
    size_t room, length;
    sherd_print_options options;
    sherd__excerpt e;
    sherd_dtype dtype;
    const char *data;  /* of the excerpt */
    int width, margin; /* of a value; of an index */
} printer;

static void put(printer *p, const char *text)
{
    size_t n = strlen(text);

    if (p->file) {
        fputs(text, p->file);
    } else if (p->length < p->room) {
        size_t fits = p->room - p->length - 1;
        memcpy(p->out + p->length, text, n < fits ? n : fits);
        p->out[p->length + (n < fits ? n : fits)] = '\0';
    }
    p->length += n;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void write_fraction(sherd__writer *w, double x, int digits)
{
    if (isnan(x)) /* whose sign says nothing */
        sherd__write(w, "nan");
    else
        sherd__write(w, "%.*g", digits, x);
}

/* The i-th value of the excerpt into text[VALUE_BYTES]; its length. */
static int value_text(const printer *p, int64_t i, char *text)
{
    const void *at = p->data + (size_t)i * sherd_dtype_bytes(p->dtype);
    sherd__writer w = {text, VALUE_BYTES, 0};
    int64_t whole;
    double x;

    if (p->dtype == SHERD_BOOL) {
        sherd__write(&w, "%s", *(const uint8_t *)at ? "true" : "false");
    } else if (sherd__has_fractions(p->dtype)) {
        sherd__cast(SHERD_F64, p->dtype, 1, &x, at);
        write_fraction(&w, x, p->options.digits);
    } else {
        sherd__cast(SHERD_I64, p->dtype, 1, &whole, at);
        sherd__write(&w, "%lld", (long long)whole);
    }
    for (char *c = text; *c; c++)
        if (*c == ',') /* of the locale */
            *c = '.';
    return (int)w.length;
}

static void find_widths(printer *p)
{
    char text[VALUE_BYTES];
    sherd__writer w = {.room = 0};
    int64_t count = 1;

    for (int d = 0; d < p->e.ndim; d++) {
        count *= p->e.size[d];
        sherd__write(&w, "%s%lld", d ? "," : "[", (long long)(p->e.shape[d] - 1));
    }
    p->margin = (int)w.length + 1;
    p->width = 1;
    for (int64_t i = 0; i < count; i++) {
        int n = value_text(p, i, text);
        p->width = n > p->width ? n : p->width;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The index of a position in the excerpt, "[3,0,5]"; "[]" for a scalar. */
static void put_index(printer *p, const int64_t *at, int ndim)
{
    char text[INDEX_BYTES + COLUMNS];
    sherd__writer w = {text, sizeof text, 0};

    sherd__write(&w, "[");
    for (int d = 0; d < ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)sherd__excerpt_index(&p->e, d, at[d]));
    sherd__write(&w, "]");
    while ((int)w.length < p->margin)
        sherd__write(&w, " ");
    put(p, text);
}

/* The values [first, end) of a row; `base` is the number of the row's first value. */
static void put_values(printer *p, int64_t *at, int64_t base, int64_t end, int ndim)
{
    int last = p->e.ndim - 1, per_line = (COLUMNS - p->margin) / (p->width + 2);
    bool goes_on = end < p->e.size[last];
    char text[VALUE_BYTES], padded[VALUE_BYTES + 4];

    per_line = per_line < 1 ? 1 : per_line;
    while (at[last] < end) {
        put_index(p, at, ndim);
        for (int i = 0; i < per_line && at[last] < end; i++, at[last]++) {
            value_text(p, base + at[last], text);
            snprintf(padded, sizeof padded, "  %*s", p->width, text);
            put(p, padded);
        }
        put(p, goes_on && at[last] == end ? "  ...\n" : "\n");
    }
}

/* Whether rows were omitted before this one: some dim has just reached its end part. */
static bool follows_gap(const printer *p, const int64_t *at)
{
    const sherd__excerpt *e = &p->e;

    for (int d = e->ndim - 2; d >= 0; d--) {
        if (at[d] > 0)
            return at[d] == e->head[d] && e->size[d] < e->shape[d];
    }
    return false;
}

/* All rows; `ndim` is 0 for a scalar. */
static void put_rows(printer *p, int ndim)
{
    const sherd__excerpt *e = &p->e;
    int last = e->ndim - 1;
    int64_t at[SHERD_MAX_DIMS] = {0}, rows = 1;

    for (int d = 0; d < last; d++)
        rows *= e->size[d];
    for (int64_t row = 0; row < rows; row++) {
        if (follows_gap(p, at))
            put(p, "...\n");
        at[last] = 0;
        put_values(p, at, row * e->size[last], e->head[last], ndim);
        put_values(p, at, row * e->size[last], e->size[last], ndim);
        at[last] = 0;
        for (int d = last - 1; d >= 0 && ++at[d] == e->size[d]; d--)
            at[d] = 0;
    }
}

static void put_title(printer *p, sherd_tensor *t)
{
    char rank[32];

    if (p->options.name) {
        put(p, p->options.name);
        put(p, ": ");
    }
    put(p, sherd_tensor_text(t));
    if (t->layout && t->layout->pending_axes)
        put(p, ", settled");
    snprintf(rank, sizeof rank, ", of rank %d", sherd_world_rank(t->world));
    if (!t->layout)
        put(p, rank);
    put(p, "\n");
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static const char *fault(const sherd_print_options *o, const sherd_tensor *t)
{
    if (o->rank < 0 || o->rank >= sherd_world_ranks(t->world))
        return "options.rank is not a rank";
    if (o->digits < 0 || o->digits > MOST_DIGITS)
        return "options.digits is not 0 to 17";
    if (o->edge < 0)
        return "options.edge is negative";
    return NULL;
}

/* Fill in defaults. */
static void set_defaults(sherd_print_options *o, const sherd_tensor *t)
{
    static const int64_t first[SHERD_MAX_AXES];

    if (o->digits == 0)
        o->digits = DIGITS;
    if (o->threshold == 0)
        o->threshold = THRESHOLD;
    if (o->edge == 0)
        o->edge = EDGE;
    if (t->layout && !sherd_mesh_coordinate(t->layout->spec.mesh, o->rank, NULL))
        o->rank = sherd__mesh_rank_at(t->layout->spec.mesh, first);
}

/* Get the values, and write them on the rank that writes. */
static void show(printer *p, sherd_tensor *t)
{
    int64_t count = sherd_tensor_count(t), most = p->options.threshold;
    bool mine = p->options.rank == sherd_world_rank(t->world);

    p->e = sherd__excerpt_of(t, most >= 0 && count > most ? p->options.edge : -1);
    p->dtype = t->dtype;
    if (count > 0 && (t->layout || mine)) {
        sherd_tensor *values = sherd__excerpt_take(&p->e, t, p->options.rank);
        p->data = mine ? sherd__data(values) : NULL;
        mine = p->data != NULL;
    }
    if (!mine)
        return;
    put_title(p, t);
    if (count == 0) {
        put(p, "no elements\n");
    } else {
        find_widths(p);
        put_rows(p, t->ndim);
    }
    if (p->file)
        fflush(p->file);
}

static void print(printer *p, const char *function, sherd_tensor *t,
                  const sherd_print_options *options)
{
    const sherd__argument need[] = {
        {"t", t}, {"out", p->room && !p->out ? NULL : ""}, {NULL, NULL}};
    sherd_world *world = sherd_tensor_world(t);
    sherd_tensor *failed;

    if (!sherd__given(world, function, need, &failed) || sherd__stop(world, function, &t, 1))
        return;
    if (options)
        p->options = *options;
    const char *why = fault(&p->options, t);
    if (why) {
        sherd__fail_tensor(world, t->layout != NULL, SHERD_EINVAL, "%s: %s: %s", function,
                           sherd_tensor_text(t), why);
        return;
    }
    set_defaults(&p->options, t);
    bool begun = sherd__doing_begin(world, function);
    sherd_scope_begin(world);
    show(p, t);
    sherd_scope_end(world);
    sherd__doing_end(world, begun);
}

void sherd_print(FILE *file, sherd_tensor *t, const sherd_print_options *options)
{
    printer p = {.file = file ? file : stdout};

    print(&p, "sherd_print", t, options);
}

size_t sherd_print_text(char *out, size_t room, sherd_tensor *t, const sherd_print_options *options)
{
    printer p = {.out = out, .room = room};

    if (out && room)
        out[0] = '\0';
    print(&p, "sherd_print_text", t, options);
    return p.length;
}
