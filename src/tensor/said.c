/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank says of a deed that others did otherwise, so that the error names the operand or the
 * attribute, and both values (world/difference.c). The ledger of a mesh has hashes only. Here the
 * last deeds are kept with the hashes that they were made of, and with attributes: a few
 * nanoseconds each, and no text. Operands and layouts are looked for by their hashes when somebody
 * asks: of what is gone by then, the deed that made it is told.
 */
#include "tensor/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "tensor/fields.h"
#include "world/doing.h"

/* Attributes lie one after the other, at the beginning again where the end is too near. */
static void keep_attributes(sherd__last_deeds *said, sherd__said_deed *deed, const sherd_op *op,
                            const void *attributes)
{
    uint64_t bytes = ((uint64_t)op->attributes + 7) / 8 * 8, left;

    left = SHERD__SAID_BYTES - said->bytes % SHERD__SAID_BYTES;
    deed->at = said->bytes + (bytes > left ? left : 0);
    said->bytes = deed->at + bytes;
    unsigned char *to = said->attribute + deed->at % SHERD__SAID_BYTES;
    if (op->attributes && attributes)
        memcpy(to, attributes, op->attributes);
    else
        memset(to, 0, op->attributes);
}

void sherd__say_call(const sherd_tensor *out, const sherd_op *op, const void *attributes, bool part)
{
    sherd__last_deeds *said = &sherd__tensors_of(out->world)->said;
    sherd__said_deed *deed = &said->deed[(said->count - 1) % SHERD__SAID];

    if (!said->count || deed->identity != out->ledger.identity)
        return;
    deed->op = op;
    deed->part = part;
    keep_attributes(said, deed, op, attributes);
}

uint64_t sherd__note_deed(sherd_world *world, const sherd_mesh *mesh, const char *name,
                          uint64_t what, const sherd_tensor *t, const sherd_op *said,
                          const void *attributes)
{
    sherd__last_deeds *last = &sherd__tensors_of(world)->said;
    sherd__said_deed *deed = &last->deed[last->count % SHERD__SAID];
    uint64_t identity, made = sherd__deed_add(mesh, name, what, &identity);

    if (!identity)
        return made;
    *deed = (sherd__said_deed){.mesh = mesh,
                               .deed = made,
                               .identity = identity,
                               .name = name,
                               .op = said,
                               .attributes = what,
                               .ins = t ? 1 : 0,
                               .in = {t ? t->ledger.identity : 0}};
    keep_attributes(last, deed, said, attributes);
    last->count++;
    return made;
}

static const sherd_op values_said = {
    .name = "values",
    .field = {{"value or start", SHERD_FIELD_DOUBLE, offsetof(sherd__values, start), 1},
              SHERD_FIELD(sherd__values, step, DOUBLE),
              SHERD_FIELD(sherd__values, end, DOUBLE),
              SHERD_FIELD(sherd__values, count, INT64),
              SHERD__CHOICE(sherd__values, distribution.kind,
                            "uniform|normal|truncated|integers|bernoulli"),
              SHERD_FIELD(sherd__values, distribution.a, DOUBLE),
              SHERD_FIELD(sherd__values, distribution.b, DOUBLE),
              SHERD__KEY_FIELDS(sherd__values, key)},
    .attributes = sizeof(sherd__values)};
_Static_assert(4 * SHERD_ATTRIBUTE_BYTES < SHERD__SAID_BYTES, "there is room for several");

void sherd__note_values(const char *name, uint64_t hash, const sherd__values *values,
                        sherd_tensor *out)
{
    sherd__note_one(sherd__doing_name(out->world, name), NULL, hash, out);
    if (out->layout)
        sherd__say_call(out, &values_said, values, true);
}

/* ---- looking for what was meant -------------------------------------------------------------- */

/* The i-th last deed; NULL: it is too long ago. */
static const sherd__said_deed *last(const sherd__last_deeds *said, uint64_t i)
{
    return i < SHERD__SAID && i < said->count ? &said->deed[(said->count - 1 - i) % SHERD__SAID]
                                              : NULL;
}

static const sherd__said_deed *deed_number(const sherd__last_deeds *said, const sherd_mesh *mesh,
                                           uint64_t number)
{
    const sherd__said_deed *d;

    for (uint64_t i = 0; (d = last(said, i)); i++)
        if (d->mesh == mesh && d->deed == number)
            break;
    return d;
}

/* The deed that made a tensor; NULL: it is too long ago. The latest, since identities come again
 * after a failed check. */
static const sherd__said_deed *maker(const sherd__last_deeds *said, uint64_t identity)
{
    const sherd__said_deed *d;

    for (uint64_t i = 0; (d = last(said, i)); i++)
        if (identity - d->identity < SHERD_MAX_RESULTS)
            break;
    return d;
}

static const sherd_layout *layout_of(const sherd__space *space, uint64_t hash)
{
    size_t cursor = 0;
    const sherd_layout *layout;

    while ((layout = sherd__map_next(&space->layouts, &cursor)) && layout->hash != hash)
        ;
    return layout;
}

static const sherd_tensor *living(const sherd__tensors *s, uint64_t identity)
{
    const sherd_tensor *t = s->all;

    while (t && (!t->layout || t->ledger.identity != identity))
        t = t->next;
    return t;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_layout(sherd__writer *w, const sherd_layout *layout, sherd_dtype dtype)
{
    char whole[512], text[64];

    if (layout)
        sherd__layout_describe(layout, dtype, whole, sizeof whole);
    sherd__fit_text(text, sizeof text, layout ? whole : sherd_dtype_name(dtype));
    sherd__write(w, "%s", text);
}

/* "f32[8(x),4] on (x=2) by operation 3 (sherd_scale)" */
static void write_tensor(sherd__writer *w, const sherd__tensors *s, const sherd_mesh *mesh,
                         uint64_t identity)
{
    const sherd__said_deed *by = maker(&s->said, identity);
    const sherd_tensor *t = living(s, identity);
    uint64_t good = mesh->ledger->good;

    if (identity == SHERD__SAID_ABSENT)
        sherd__write(w, "absent");
    else if (!identity)
        sherd__write(w, "a plain tensor");
    else if (t)
        write_layout(w, t->layout, t->dtype);
    else if (by && by->identity == identity)
        write_layout(w, layout_of(sherd__world_space(s->world), by->layout), by->dtype);
    else
        sherd__write(w, "a tensor");
    if (by && by->mesh == mesh && by->deed > good)
        sherd__write(w, " by operation %llu (%s)", (unsigned long long)(by->deed - good), by->name);
    else if (identity > SHERD__SAID_ABSENT)
        sherd__write(w, " from before the last check");
}

/* The fewest digits that give the number back. */
static void write_double(sherd__writer *w, double number)
{
    char text[32];
    int digits = 6;

    do
        snprintf(text, sizeof text, "%.*g", digits, number);
    while (digits++ < 17 && strtod(text, NULL) != number);
    sherd__write(w, "%s", text);
}

/* An int, or what it stands for: SHERD__CHOICE. */
static void write_choice(sherd__writer *w, const sherd_op_field *field, int value)
{
    const char *name = strchr(field->name, '=');

    for (int i = 0; name && i < value; i++)
        name = strchr(name + 1, '|');
    if (name && value >= 0)
        sherd__write(w, "%.*s", (int)strcspn(name + 1, "|"), name + 1);
    else
        sherd__write(w, "%d", value);
}

static void write_number(sherd__writer *w, const sherd_op_field *field, const unsigned char *at)
{
    union {
        int i;
        int64_t wide;
        double number;
        bool truth;
        uint32_t word;
    } value = {.wide = 0};

    memcpy(&value, at, sherd__field_bytes(field->kind));
    switch (field->kind) {
    case SHERD_FIELD_INT:
        if (strcmp(field->name, "dtype") == 0)
            sherd__write(w, "%s", sherd_dtype_name((sherd_dtype)value.i));
        else
            write_choice(w, field, value.i);
        break;
    case SHERD_FIELD_INT64:
        sherd__write(w, "%lld", (long long)value.wide);
        break;
    case SHERD_FIELD_DOUBLE:
        write_double(w, value.number);
        break;
    case SHERD_FIELD_BOOL:
        sherd__write(w, "%s", value.truth ? "true" : "false");
        break;
    case SHERD_FIELD_UINT32:
        sherd__write(w, "%u", (unsigned)value.word);
        break;
    default:
        sherd__write(w, "%d", *at);
    }
}

static bool is_zero(const unsigned char *at, size_t bytes)
{
    while (bytes > 0 && !at[bytes - 1])
        bytes--;
    return bytes == 0;
}

/* A member of attributes: a number, "[2, 3]", or a text. */
static void write_field(sherd__writer *w, const sherd_op_field *field, const unsigned char *at)
{
    size_t count = sherd__field_count(field), bytes = sherd__field_bytes(field->kind);

    if (field->kind == SHERD_FIELD_BYTE && count > 1) {
        sherd__write(w, "\"%.*s\"", (int)count, (const char *)at);
        return;
    }
    bool many = count > 1;
    while (count > 1 && is_zero(at + (count - 1) * bytes, bytes))
        count--; /* behind what is used */
    for (size_t i = 0; i < count; i++) {
        sherd__write(w, "%s", i ? ", " : many ? "[" : "");
        write_number(w, field, at + i * bytes);
    }
    sherd__write(w, "%s", many ? "]" : "");
}

/* The i-th operand's name, if the operator has said so much. */
static const char *name_of(const sherd_op *op, int i)
{
    int count = 0;

    while (op && count < SHERD_OP_SLOTS && op->operand[count].name)
        count++;
    return i < count ? op->operand[i].name : NULL;
}

static void write_operands(sherd__writer *w, const sherd__tensors *s, const sherd__said_deed *d)
{
    sherd__write(w, "the number of operands\t%d\t%d\n", d->ins, d->ins);
    for (int i = 0; i < d->ins && i < SHERD__SAID_INS; i++) {
        const char *name = d->part ? NULL : name_of(d->op, i);
        sherd__write(w, "operand %d%s%s%s\t", i, name ? " (" : "", name ? name : "",
                     name ? ")" : "");
        write_tensor(w, s, d->mesh, d->in[i]);
        sherd__write(w, "\t%llx\n", (unsigned long long)d->in[i]);
    }
}

/* The numbers of a hash say nothing to anybody. The names of these end with a comma. */
static bool is_hash(const sherd_op_field *field)
{
    return field->name[strlen(field->name) - 1] == ',';
}

static void write_attributes(sherd__writer *w, const sherd__last_deeds *said,
                             const sherd__said_deed *d)
{
    bool kept = d->op && said->bytes - d->at <= SHERD__SAID_BYTES;

    for (int f = 0; kept && f < SHERD_OP_FIELDS && d->op->field[f].name; f++) {
        const sherd_op_field *field = &d->op->field[f];
        const unsigned char *at = said->attribute + d->at % SHERD__SAID_BYTES + field->offset;
        sherd__write(w, "%.*s\t", (int)strcspn(field->name, "="), field->name);
        if (!is_hash(field))
            write_field(w, field, at);
        uint64_t key =
            sherd__hash_bytes(0, at, sherd__field_count(field) * sherd__field_bytes(field->kind));
        sherd__write(w, "\t%llx\n", (unsigned long long)key);
    }
    sherd__write(w, "%s\t\t%llx\n", kept ? "what computes it" : "an argument that is no tensor",
                 (unsigned long long)d->attributes);
}

void sherd__tell_deed(sherd_world *world, const sherd_mesh *mesh, uint64_t deed, char *text,
                      size_t room)
{
    const sherd__tensors *s = sherd__tensors_of(world);
    const sherd__said_deed *d = deed_number(&s->said, mesh, deed);
    sherd__writer w = {text, room, 0};

    text[0] = '\0';
    if (!d)
        return;
    write_operands(&w, s, d);
    write_attributes(&w, &s->said, d);
    sherd__write(&w, "the result\t");
    write_layout(&w, layout_of(sherd__world_space(world), d->layout), d->dtype);
    sherd__write(&w, "\t%llx %d\n", (unsigned long long)d->layout, (int)d->dtype);
}
