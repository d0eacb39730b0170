/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a file, parsed and written by jansson: see io/header.h. header_none.c replaces this
 * file if there is no jansson.
 */
#include "io/header.h"
#include "io/index.h"

#include "base/num.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/*
 * The format's names of dtypes, and what an element takes; those without a dtype are listed, and
 * not read.
 */
static const struct {
    const char *name;
    sherd_dtype dtype;
    int bits;
} dtypes[] = {
    {"F64", SHERD_F64, 64},
    {"F32", SHERD_F32, 32},
    {"BF16", SHERD_BF16, 16},
    {"F16", SHERD_F16, 16},
    {"I64", SHERD_I64, 64},
    {"I32", SHERD_I32, 32},
    {"U8", SHERD_U8, 8},
    {"I8", SHERD_I8, 8},
    {"BOOL", SHERD_BOOL, 8},
    {"I16", SHERD_DTYPE_NONE, 16},
    {"U16", SHERD_DTYPE_NONE, 16},
    {"U32", SHERD_DTYPE_NONE, 32},
    {"U64", SHERD_DTYPE_NONE, 64},
    {"F8_E5M2", SHERD_DTYPE_NONE, 8},
    {"F8_E4M3", SHERD_DTYPE_NONE, 8},
    {"F8_E8M0", SHERD_DTYPE_NONE, 8},
    {"F8_E4M3FNUZ", SHERD_DTYPE_NONE, 8},
    {"F8_E5M2FNUZ", SHERD_DTYPE_NONE, 8},
    {"F6_E2M3", SHERD_DTYPE_NONE, 6},
    {"F6_E3M2", SHERD_DTYPE_NONE, 6},
    {"F4", SHERD_DTYPE_NONE, 4},
    {"C64", SHERD_DTYPE_NONE, 64},
};
enum { NAMES = sizeof dtypes / sizeof dtypes[0] };

/* What is read. */
typedef struct reader {
    sherd__header *header;
    const sherd__header_of *of;
    int64_t begin; /* of the elements, in the file */
} reader;

static sherd_status bad(const reader *r, const char *name, const char *why)
{
    return sherd__fail(r->of->diag, SHERD_EINVAL, "%s: \"%.180s\": %s%.120s%s%s", r->of->function,
                       r->of->path, name ? "\"" : "", name ? name : "", name ? "\" " : "", why);
}

/* ---- from text ------------------------------------------------------------------------------- */

static sherd_status read_shape(const reader *r, json_t *shape, sherd_file_entry *e, int64_t *count)
{
    size_t ndim = json_array_size(shape);

    if (!json_is_array(shape))
        return bad(r, e->name, "has no shape");
    if (ndim > SHERD_MAX_DIMS)
        return sherd__fail(r->of->diag, SHERD_ELIMIT,
                           "%s: \"%.180s\": \"%.120s\" has %zu dims; %d are the most",
                           r->of->function, r->of->path, e->name, ndim, SHERD_MAX_DIMS);
    e->ndim = (int)ndim;
    for (int d = 0; d < e->ndim; d++) {
        json_t *size = json_array_get(shape, (size_t)d);
        e->shape[d] = json_is_integer(size) ? json_integer_value(size) : -1;
    }
    return sherd__count(e->shape, e->ndim, count)
               ? SHERD_OK
               : bad(r, e->name, "has a size that is not a whole number from 0 to below 2^62");
}

static sherd_status read_place(const reader *r, json_t *place, sherd_file_entry *e)
{
    json_t *from = json_array_get(place, 0), *to = json_array_get(place, 1);
    int64_t begin = json_integer_value(from), end = json_integer_value(to);

    if (json_array_size(place) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        begin < 0 || end < begin)
        return bad(r, e->name, "has no valid data_offsets");
    if (end > r->of->file_bytes - r->begin)
        return bad(r, e->name, "lies beyond the end of the file, which may have been cut off");
    e->offset = r->begin + begin;
    e->bytes = end - begin;
    return SHERD_OK;
}

static sherd_status read_entry(const reader *r, const char *name, json_t *value,
                               sherd_file_entry *e)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    int64_t count, bits;
    int k = 0;

    if (!(e->name = sherd__copy_text(r->header->heap, name)))
        return sherd__no_memory(r->of->diag, r->of->function);
    while (dtype && k < NAMES && strcmp(dtype, dtypes[k].name) != 0)
        k++;
    if (!dtype || k == NAMES)
        return bad(r, name, "has a dtype that safetensors does not define");
    e->dtype = dtypes[k].dtype;
    sherd_status status = read_shape(r, json_object_get(value, "shape"), e, &count);
    if (!status)
        status = read_place(r, json_object_get(value, "data_offsets"), e);
    if (!status && (!sherd__mul(count, dtypes[k].bits, &bits) || bits % 8 || bits / 8 != e->bytes))
        status = bad(r, name, "has another number of bytes than its shape needs");
    return status;
}

static sherd_status read_note(const reader *r, const char *key, json_t *value, sherd_file_note *n)
{
    if (!json_is_string(value))
        return bad(r, "__metadata__", "must hold nothing but text");
    n->key = sherd__copy_text(r->header->heap, key);
    n->text = sherd__copy_text(r->header->heap, json_string_value(value));
    return n->key && n->text ? SHERD_OK : sherd__no_memory(r->of->diag, r->of->function);
}

static int by_place(const void *a, const void *b)
{
    const sherd_file_entry *const *x = a, *const *y = b;

    if ((*x)->offset != (*y)->offset)
        return (*x)->offset < (*y)->offset ? -1 : 1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

/* Tensors must follow one another without gaps: no bytes are shared, and none hidden. */
static sherd_status check_places(const reader *r)
{
    const sherd__header *h = r->header;
    int64_t at = r->begin;
    const sherd_file_entry **sorted =
        sherd__alloc(h->heap, (size_t)h->entries + 1, sizeof(const sherd_file_entry *));

    if (!sorted)
        return sherd__no_memory(r->of->diag, r->of->function);
    for (int i = 0; i < h->entries; i++)
        sorted[i] = &h->entry[i];
    qsort(sorted, (size_t)h->entries, sizeof(const sherd_file_entry *), by_place);
    int i = 0;
    for (; i < h->entries && sorted[i]->offset == at; i++)
        at += sorted[i]->bytes;
    const char *name = i < h->entries ? sorted[i]->name : NULL;
    sherd__free(h->heap, sorted);
    if (name)
        return bad(r, name, "does not begin where the one before it ends");
    return at == r->of->file_bytes ? SHERD_OK
                                   : bad(r, NULL, "is longer or shorter than its tensors");
}

static sherd_status read_all(const reader *r, json_t *root)
{
    sherd__header *h = r->header;
    json_t *notes = json_object_get(root, "__metadata__"), *value;
    sherd_status status = SHERD_OK;
    const char *key;

    /* A null is what some writers make of no notes; the format's own reader takes it too. */
    if (!json_is_object(root) || (notes && !json_is_object(notes) && !json_is_null(notes)))
        return bad(r, NULL, "has no header that is an object of JSON");
    h->entry = sherd__alloc(h->heap, json_object_size(root) + 1, sizeof *h->entry);
    h->note = sherd__alloc(h->heap, json_object_size(notes) + 1, sizeof *h->note);
    if (!h->entry || !h->note)
        return sherd__no_memory(r->of->diag, r->of->function);
    json_object_foreach(notes, key, value)
    {
        if (!status)
            status = read_note(r, key, value, &h->note[h->notes++]);
    }
    json_object_foreach(root, key, value)
    {
        if (!status && strcmp(key, "__metadata__") != 0)
            status = read_entry(r, key, value, &h->entry[h->entries++]);
    }
    return status ? status : check_places(r);
}

/*
 * The object of a text; NULL: it has none, or memory has run out (*poor). jansson says the latter
 * only here and there, and mostly that the text is wrong, or nothing. So what it refuses is read
 * again: a text that is wrong is so in the same place. An error without a text has no code.
 */
static json_t *parse(const char *text, size_t bytes, json_error_t *error, bool *poor)
{
    json_error_t again;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);

    *poor = false;
    if (root || (root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &again)))
        return root;
    *poor = !*error->text || json_error_code(error) == json_error_out_of_memory ||
            error->position != again.position || strcmp(error->text, again.text) != 0;
    return NULL;
}

/* The same, where an error is reported; `what` is the text, or what is wrong with it. */
static json_t *root_of(sherd_status *status, const char *text, size_t bytes,
                       const sherd__header_of *of, const char *what)
{
    json_error_t error;
    bool poor;
    json_t *root = parse(text, bytes, &error, &poor);

    *status = root   ? SHERD_OK
              : poor ? sherd__no_memory(of->diag, of->function)
                     : sherd__fail(of->diag, SHERD_EINVAL, "%s: \"%.180s\": %s: %s", of->function,
                                   of->path, what, error.text);
    return root;
}

sherd_status sherd__header_parse(sherd__header *out, const char *text, size_t bytes,
                                 const sherd__header_of *of)
{
    const reader r = {out, of, SHERD__HEADER_LENGTH + (int64_t)bytes};
    sherd_status status;
    json_t *root = root_of(&status, text, bytes, of, "its header");

    *out = (sherd__header){.heap = of->heap};
    if (!root)
        return status;
    status = read_all(&r, root);
    json_decref(root);
    if (!status && !sherd__header_index(out))
        status = sherd__no_memory(of->diag, of->function);
    if (status)
        sherd__header_clear(out);
    return status;
}

/* ---- an index -------------------------------------------------------------------------------- */

/* "weight_map": for each tensor the name of its file, which is beside the index. */
static sherd_status read_map(sherd__paths *out, json_t *map, const sherd__header_of *of)
{
    const char *name, *slash = strrchr(of->path, '/');
    json_t *value;
    int folder = slash ? (int)(slash - of->path) + 1 : 0;
    sherd_status status = SHERD_OK;

    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        if (status)
            continue;
        if (!file || !*file || strchr(file, '/'))
            status = sherd__fail(of->diag, SHERD_EINVAL,
                                 "%s: \"%.180s\": \"%.120s\" has no name of a file beside it",
                                 of->function, of->path, name);
        else if (!sherd__paths_add(out, of->heap, of->path, folder, file, true))
            status = sherd__no_memory(of->diag, of->function);
    }
    return status;
}

sherd_status sherd__index_parse(sherd__paths *out, const char *text, size_t bytes,
                                const sherd__header_of *of)
{
    sherd_status status;
    json_t *root = root_of(&status, text, bytes, of, "it is no JSON");

    if (!root)
        return status;
    json_t *map = json_object_get(root, "weight_map");
    status = json_object_size(map)
                 ? read_map(out, map, of)
                 : sherd__fail(of->diag, SHERD_EINVAL,
                               "%s: \"%.180s\": is no index: it has no \"weight_map\" with entries",
                               of->function, of->path);
    json_decref(root);
    return status;
}

/* ---- to text --------------------------------------------------------------------------------- */

static const char *name_of(sherd_dtype dtype)
{
    int k = 0;

    while (dtypes[k].dtype != dtype)
        k++;
    return dtypes[k].name;
}

/* NULL: out of memory. */
static json_t *entry_json(const sherd_file_entry *e)
{
    json_t *shape = json_array();
    bool good = shape != NULL;

    for (int d = 0; d < e->ndim && good; d++)
        good = !json_array_append_new(shape, json_integer(e->shape[d]));
    if (!good) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", name_of(e->dtype), "shape", shape,
                     "data_offsets", (json_int_t)e->offset, (json_int_t)(e->offset + e->bytes));
}

/* Set offsets from the first element on, tensors with larger elements first. */
static void place_entries(sherd__header *h)
{
    int64_t at = 0;

    for (size_t size = 8; size; size /= 2)
        for (int i = 0; i < h->entries; i++)
            if (sherd_dtype_bytes(h->entry[i].dtype) == size) {
                h->entry[i].offset = at;
                at += h->entry[i].bytes;
            }
}

/* Why nothing can be put under a name, or NULL. */
static const char *fault_of(json_t *object, const char *name)
{
    if (!name)
        return "is NULL";
    if (!sherd__is_utf8(name))
        return "is no UTF-8";
    return json_object_get(object, name) ? "is there twice" : NULL;
}

/*
 * Write notes and entries into an object. EINVAL sets *name to one that cannot be written, and
 * *fault to why; ENOMEM. Neither is reported.
 */
static sherd_status fill_json(json_t *root, const sherd__header *h, const char **name,
                              const char **fault)
{
    json_t *notes = h->notes ? json_object() : NULL;

    /* This releases the notes even if there is no root. */
    if ((h->notes && json_object_set_new(root, "__metadata__", notes)) || !root)
        return SHERD_ENOMEM;
    for (int i = 0; i < h->notes && !*fault; i++) {
        *name = h->note[i].key;
        *fault = fault_of(notes, *name);
        if (!*fault && !(h->note[i].text && sherd__is_utf8(h->note[i].text)))
            *fault = "has no text in UTF-8";
        if (!*fault && json_object_set_new(notes, *name, json_string(h->note[i].text)))
            return SHERD_ENOMEM;
    }
    for (int i = 0; i < h->entries && !*fault; i++) {
        *name = h->entry[i].name;
        *fault = fault_of(root, *name);
        if (!*fault && json_object_set_new(root, *name, entry_json(&h->entry[i])))
            return SHERD_ENOMEM;
    }
    return *fault ? SHERD_EINVAL : SHERD_OK;
}

/* The header's length and its text, with blanks behind; NULL: out of memory. */
static char *write_text(sherd__heap *heap, const json_t *root, size_t length, size_t padded)
{
    char *out = sherd__alloc(heap, 1, SHERD__HEADER_LENGTH + padded);

    if (!out)
        return NULL;
    for (int i = 0; i < SHERD__HEADER_LENGTH; i++)
        out[i] = (char)(padded >> (8 * i) & 0xFF);
    memset(out + SHERD__HEADER_LENGTH, ' ', padded);
    if (json_dumpb(root, out + SHERD__HEADER_LENGTH, length, JSON_COMPACT) == length)
        return out;
    sherd__free(heap, out);
    return NULL;
}

sherd_status sherd__header_text(char **out, size_t *bytes, sherd__header *header, sherd__diag *diag,
                                const char *function)
{
    json_t *root = json_object();
    const char *name = "", *fault = NULL;

    *out = NULL;
    place_entries(header);
    sherd_status status = fill_json(root, header, &name, &fault);
    if (status) {
        json_decref(root);
        return status == SHERD_ENOMEM ? sherd__no_memory(diag, function)
                                      : sherd__fail(diag, status, "%s: \"%.120s\" %s", function,
                                                    name ? name : "(null)", fault);
    }
    /* json_dumps can lose a part of the text where memory runs out, and says nothing. */
    size_t length = json_dumpb(root, NULL, 0, JSON_COMPACT), padded = (length + 7) / 8 * 8;
    bool fits = padded <= SHERD__MOST_HEADER;
    if (length && fits)
        *out = write_text(header->heap, root, length, padded);
    json_decref(root);
    *bytes = SHERD__HEADER_LENGTH + padded;
    for (int i = 0; i < header->entries; i++)
        header->entry[i].offset += (int64_t)*bytes;
    if (!fits)
        return sherd__fail(diag, SHERD_ELIMIT,
                           "%s: names, shapes and notes take %zu bytes; %d are the most", function,
                           length, SHERD__MOST_HEADER);
    return *out ? SHERD_OK : sherd__no_memory(diag, function);
}
