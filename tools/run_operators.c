/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies operators by name to operands from a JSON file, on ranks that are threads, under the
 * layouts that the file says, and writes results and gradients: the other half of
 * tools/compare_torch.py. Usage: run_operators CASES RESULTS [RANKS [ELEMENTS]].
 *
 * A case: {"op": "sherd_add", "attributes": {"eps": 1e-5}, "operands": [{"dtype": "f64", "shape":
 * [2,3], "data": [..], "placements": "S(0)", "grad": true, "written": true}, null], "weights":
 * [..]}. The loss is the sum of result 0 times weights. Of operands that are written the new values
 * are a result too, under "written". With a fourth argument, a file, elements go there as f64, and
 * their place into RESULTS; operands may lie in files likewise (json_tensors.h).
 */
#include <math.h>
#include <stdio.h>

#include "json_tensors.h"

typedef struct job {
    json_t *cases, *results; /* results: written by rank 0 */
    FILE *elements;          /* NULL: into results */
} job;

static sherd_tensor *read_operand(sherd_world *world, const sherd_mesh *mesh, const json_t *o)
{
    const char *placements = json_string_value(json_object_get(o, "placements"));
    sherd_dtype dtype = dtype_of(json_string_value(json_object_get(o, "dtype")));
    const sherd_layout *layout;
    int64_t shape[SHERD_MAX_DIMS];
    int ndim = read_shape(json_object_get(o, "shape"), shape);
    sherd_tensor *t = read_numbers(world, json_object_get(o, "data"), shape, ndim, dtype);

    if (placements) {
        if (sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL))
            return t;
        t = sherd_distribute(t, layout, -1);
    }
    return json_is_true(json_object_get(o, "grad")) ? sherd_require_grad(t, true) : t;
}

static void read_value(const sherd_op_field *field, int i, const json_t *value, char *at)
{
    double d = json_number_value(value);
    int64_t wide = json_is_integer(value) ? json_integer_value(value) : (int64_t)d;
    int number = (int)wide;
    uint32_t word = (uint32_t)wide;
    bool yes = json_is_true(value) || (json_is_integer(value) && wide);

    switch (field->kind) {
    case SHERD_FIELD_DOUBLE:
        memcpy(at + (size_t)i * sizeof d, &d, sizeof d);
        break;
    case SHERD_FIELD_INT64:
        memcpy(at + (size_t)i * sizeof wide, &wide, sizeof wide);
        break;
    case SHERD_FIELD_INT:
        memcpy(at + (size_t)i * sizeof number, &number, sizeof number);
        break;
    case SHERD_FIELD_UINT32:
        memcpy(at + (size_t)i * sizeof word, &word, sizeof word);
        break;
    case SHERD_FIELD_BOOL:
        memcpy(at + (size_t)i * sizeof yes, &yes, sizeof yes);
        break;
    case SHERD_FIELD_BYTE:
        at[i] = (char)wide;
        break;
    }
}

static void read_attributes(const sherd_op *op, const json_t *given, char *out)
{
    for (int i = 0; i < SHERD_OP_FIELDS && op->field[i].name; i++) {
        const sherd_op_field *field = &op->field[i];
        const json_t *value = json_object_get(given, field->name);
        const char *text = json_string_value(value);
        if (text) /* an array of bytes */
            memcpy(out + field->offset, text, strlen(text) + 1);
        else if (json_is_array(value))
            for (size_t k = 0; k < json_array_size(value); k++)
                read_value(field, (int)k, json_array_get(value, k), out + field->offset);
        else if (value)
            read_value(field, 0, value, out + field->offset);
    }
}

static json_t *write_number(double number)
{
    if (isfinite(number))
        return json_real(number);
    return json_string(isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
}

/* Elements into an array, or at the end of a file: then where they begin. Rank 0 writes that. */
static json_t *write_elements(const job *j, sherd_world *world, const double *numbers, int64_t n)
{
    json_t *data = json_array();

    if (j->elements && numbers && sherd_world_rank(world) == 0) {
        json_decref(data);
        data = json_integer(ftell(j->elements) / (long)sizeof *numbers);
        fwrite(numbers, sizeof *numbers, (size_t)n, j->elements);
    }
    for (int64_t i = 0; !j->elements && numbers && i < n; i++)
        json_array_append_new(data, write_number(numbers[i]));
    return data;
}

/* Shape and elements, whole, as f64; null for none. */
static json_t *write_tensor(const job *j, sherd_world *world, sherd_tensor *t)
{
    json_t *out, *shape = json_array();

    if (!t || sherd_tensor_failed(t))
        return json_null();
    sherd_tensor *whole = sherd_cast(sherd_full(t), SHERD_F64);
    const double *numbers = sherd_tensor_read(whole);
    for (int d = 0; d < sherd_tensor_ndim(t); d++)
        json_array_append_new(shape, json_integer(sherd_tensor_shape(t)[d]));
    out = json_object();
    json_object_set_new(out, "shape", shape);
    json_object_set_new(out, "data", write_elements(j, world, numbers, sherd_tensor_count(whole)));
    return out;
}

static void backward(sherd_world *world, sherd_tensor *y, const json_t *weights)
{
    sherd_tensor *w = read_numbers(world, weights, sherd_tensor_shape(y), sherd_tensor_ndim(y),
                                   sherd_tensor_dtype(y));

    sherd_backward(sherd_sum(sherd_mul(y, w)));
}

static json_t *run_case(const job *j, sherd_world *world, const sherd_mesh *mesh, const json_t *c)
{
    const sherd_op *op = sherd_op_find(world, json_string_value(json_object_get(c, "op")));
    const json_t *operands = json_object_get(c, "operands"),
                 *weights = json_object_get(c, "weights");
    int count = (int)json_array_size(operands);
    sherd_tensor *in[SHERD_MAX_OPERANDS] = {NULL}, *y[SHERD_MAX_RESULTS] = {NULL};
    char attributes[SHERD_ATTRIBUTE_BYTES] = {0};
    json_t *out = json_object(), *results = json_array(), *gradients = json_array();
    json_t *written = json_array();

    for (int i = 0; i < count && op; i++)
        if (!json_is_null(json_array_get(operands, (size_t)i)))
            in[i] = read_operand(world, mesh, json_array_get(operands, (size_t)i));
    if (op)
        read_attributes(op, json_object_get(c, "attributes"), attributes);
    if (op && sherd_apply_all(y, op, in, count, attributes) && weights)
        backward(world, y[0], weights);
    for (int k = 0; k < SHERD_MAX_RESULTS && y[k]; k++)
        json_array_append_new(results, write_tensor(j, world, y[k]));
    for (int i = 0; i < count; i++) {
        const json_t *o = json_array_get(operands, (size_t)i);
        json_array_append_new(gradients, in[i] && sherd_requires_grad(in[i])
                                             ? write_tensor(j, world, sherd_grad(in[i]))
                                             : json_null());
        json_array_append_new(written, json_is_true(json_object_get(o, "written"))
                                           ? write_tensor(j, world, in[i])
                                           : json_null());
    }
    sherd_status status = sherd_world_check(world);
    json_object_set_new(out, "error",
                        !op      ? json_string("there is no such operator")
                        : status ? json_string(sherd_world_error(world))
                                 : json_null());
    json_object_set_new(out, "results", results);
    json_object_set_new(out, "gradients", gradients);
    json_object_set_new(out, "written", written);
    return out;
}

static int run(sherd_world *world, void *payload)
{
    job *j = payload;
    const sherd_mesh *mesh;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    if (sherd_mesh_parse(&mesh, world, text))
        return 1;
    for (size_t i = 0; i < json_array_size(j->cases); i++) {
        sherd_scope_begin(world);
        json_t *result = run_case(j, world, mesh, json_array_get(j->cases, i));
        sherd_scope_end(world);
        if (sherd_world_rank(world) == 0)
            json_array_append_new(j->results, result);
        else
            json_decref(result);
    }
    return 0;
}

int main(int count, char **argument)
{
    json_error_t error;
    int exit_status = 1;
    sherd_world_options options = {.ranks = count > 3 ? atoi(argument[3]) : 1};

    if (count < 3) {
        fprintf(stderr, "usage: run_operators CASES RESULTS [RANKS [ELEMENTS]]\n");
        return 2;
    }
    job j = {json_load_file(argument[1], 0, &error), json_array(),
             count > 4 ? fopen(argument[4], "wb") : NULL};
    if (!json_is_array(j.cases)) {
        fprintf(stderr, "%s: %s\n", argument[1], error.text);
        return 2;
    }
    setenv("SHERD_TRANSPORT", "threads", 1);
    if (sherd_spawn(&exit_status, &options, run, &j) || exit_status)
        return 1;
    if (j.elements && fclose(j.elements))
        return 1;
    return json_dump_file(j.results, argument[2], JSON_COMPACT) ? 1 : 0;
}
