/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs over all rows (operator_list.h): leaves, calls on what is there, moves of one
 * tensor and of several, parts that are modules. A program is drawn while its plain form runs, so
 * that each call is made where it is continuous and numbers stay small: then roundings stay
 * roundings, and whatever else differs is wrong. A seed gives one program.
 */
#ifndef SHERD_TESTS_OPERATOR_GRAPH_H
#define SHERD_TESTS_OPERATOR_GRAPH_H

#include "operator_list.h"

#include "sherd/module.h"

enum { MOST_VALUES = 64, MOST_STEPS = 20, MOST_OUT = 3, MOST_SEGMENTS = 3, MOST_MOVED = MOST_OUT };

typedef enum step_kind { CALL, MOVE, MANY } step_kind;

typedef struct step {
    step_kind kind;
    call_plan call;
    int in[MOST_IN], ins; /* values */
    int out[MOST_OUT], outs;
    uint64_t seed; /* of layouts */
} step;

/* Steps that are the forward of a module. One may lie within another. */
typedef struct segment {
    int begin, end, parent;
    int in[SHERD_MAX_ARGS], ins, out[SHERD_MAX_ARGS], outs;
    bool checkpointed, resharded;
} segment;

typedef struct program {
    uint64_t seed;
    sherd_dtype dtype;
    bool narrow; /* some numbers are f32 */
    int values, steps, segments;
    need value[MOST_VALUES];
    bool leaf[MOST_VALUES], wanted[MOST_VALUES], used[MOST_VALUES], grows[MOST_VALUES];
    step step[MOST_STEPS];
    segment segment[MOST_SEGMENTS];
} program;

/* A program in the making. */
typedef struct drawing {
    sherd_world *world;
    program *p;
    uint64_t dice;
    sherd_generator generator;
    sherd_tensor *plain[MOST_VALUES];
    double data[MOST_VALUES][MOST_ELEMENTS];
} drawing;

/* ---- values ---------------------------------------------------------------------------------- */

/* Whether what is there is what a row needs. */
static inline bool suits(const drawing *d, int v, const need *w)
{
    const need *have = &d->p->value[v];
    const double *x = d->data[v];
    int64_t n = product_of(have->shape, have->ndim);
    bool good = true;

    if (w->kind == 'i' || w->kind == 'b')
        good = have->dtype == (w->kind == 'i' ? SHERD_I32 : SHERD_BOOL);
    else if (have->dtype != w->dtype || (w->kind == 'w' && is_fraction(have->dtype)))
        return false;
    for (int64_t i = 0; i < n && good && w->kind == 'i'; i++)
        good = x[i] >= 0 && x[i] < (double)w->limit;
    if (!is_fraction(have->dtype))
        return good;
    for (int64_t i = 0; i < n && good && (w->kind == 'p' || w->kind == 'q'); i++)
        good = x[i] > 0.2;
    for (int64_t i = 0; i < n && good && w->kind == 's'; i++)
        good = fabs(x[i]) < 0.95;
    for (int64_t i = 0; i < n && good && w->kind == 'l'; i++)
        good = x[i] > 1.05;
    if (good && (w->kind == 'd' || w->kind == 'q'))
        good = are_apart(x, n, d->p->narrow ? 1e-3 : 1e-6);
    return good;
}

static inline bool has_shape(const need *a, const need *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(int64_t) * (size_t)a->ndim) == 0;
}

/* A value of these properties; -1: no room. Its numbers must be small. */
static inline int add_value(drawing *d, sherd_tensor *t)
{
    program *p = d->p;
    int v = p->values;

    if (v == MOST_VALUES || sherd_tensor_failed(t) || sherd_tensor_ndim(t) > MOST_DIMS)
        return -1;
    int64_t n = load_all(d->data[v], t);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(d->data[v][i]) <= 8))
            return -1;
    p->value[v] = (need){.ndim = t->ndim, .dtype = t->dtype};
    memcpy(p->value[v].shape, t->shape, sizeof(int64_t) * (size_t)t->ndim);
    p->leaf[v] = p->used[v] = false;
    p->grows[v] = false;
    p->narrow |= t->dtype == SHERD_F32;
    d->plain[v] = t;
    p->values += n >= 0;
    return n < 0 ? -1 : v;
}

static inline int add_leaf(drawing *d, const need *w)
{
    int v = add_value(d, plain_leaf(d->world, w));

    if (v < 0)
        return v;
    d->p->value[v] = *w;
    d->p->leaf[v] = true;
    d->p->wanted[v] = d->p->grows[v] = is_fraction(w->dtype) && roll(&d->dice, 8);
    return v;
}

/* One that is there, or a new leaf. */
static inline int find_value(drawing *d, const need *w)
{
    int start = roll(&d->dice, d->p->values);

    for (int i = 0; i < d->p->values && roll(&d->dice, 32); i++) {
        int v = (start + i) % d->p->values;
        if (has_shape(&d->p->value[v], w) && suits(d, v, w))
            return v;
    }
    return add_leaf(d, w);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Whether an operator takes such elements. */
static inline bool takes(const row *r, sherd_dtype dtype)
{
    const sherd_op *op = sherd_op_find(NULL, r->op);
    sherd_op_numbers numbers = op                    ? op->numbers
                               : r->run == run_split ? SHERD_EVERYTHING
                                                     : SHERD_FRACTIONS;

    return is_fraction(dtype) || numbers == SHERD_EVERYTHING ||
           (numbers == SHERD_NUMBERS && dtype != SHERD_BOOL);
}

/* Mostly one of the last that a gradient flows through, so that programs get deep. */
static inline int draw_value(drawing *d)
{
    program *p = d->p;
    int newest = roll(&d->dice, 4);

    for (int v = p->values - 1; v >= 0 && newest < 3; v--)
        if (p->grows[v] && !p->leaf[v] && newest-- == 0)
            return v;
    return roll(&d->dice, p->values);
}

/* Draw the first operand of a row, and what goes with it. */
static inline bool draw_operands(drawing *d, step *s, const row *r)
{
    int v = draw_value(d);
    need first = d->p->value[v];

    first.kind = kind_of(r);
    if (first.ndim < r->least || first.ndim > r->most || !takes(r, first.dtype) ||
        !suits(d, v, &first)) {
        if (roll(&d->dice, r->least < 4 ? 6 : 2))
            return false;
        first.dtype = d->p->dtype;
        draw_shape(&first, r->least, r->most, 40, &d->dice);
        v = -1;
    }
    if (!draw_call(&s->call, r, &first, &d->dice))
        return false;
    s->in[0] = v >= 0 ? v : add_leaf(d, &s->call.in[0]);
    s->ins = s->call.operands;
    bool good = s->in[0] >= 0;
    for (int i = 1; i < s->ins && good; i++) {
        s->in[i] = find_value(d, &s->call.in[i]);
        good = s->in[i] >= 0;
    }
    return good;
}

/* Of each query no two points may be about as far, nor one be about as far as the radius, or where
 * the query is. */
static inline bool is_apart(const drawing *d, const step *s)
{
    const need *points = &d->p->value[s->in[0]], *queries = &d->p->value[s->in[1]];
    double x[MOST_ELEMENTS], q[MOST_ELEMENTS], far[MOST_ELEMENTS];
    int64_t n = points->shape[0], width = points->shape[1];
    double least = d->p->narrow ? 1e-3 : 1e-6, radius = 0.01 * (double)s->call.number[1];

    if (load_all(x, d->plain[s->in[0]]) < 0 || load_all(q, d->plain[s->in[1]]) < 0)
        return false;
    for (int64_t i = 0; i < queries->shape[0]; i++)
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t c = 0; c < width; c++)
                sum += pow(x[k * width + c] - q[i * width + c], 2);
            far[k] = sqrt(sum);
            bool good = far[k] > least && fabs(far[k] - radius) > least;
            for (int64_t j = 0; j < k && good; j++)
                good = fabs(far[k] - far[j]) > least;
            if (!good)
                return false;
        }
    return true;
}

/* Where two operands are compared, none may be as good as equal: a rounding would decide. */
static inline bool is_decided(const drawing *d, const step *s)
{
    const row *r = s->call.row;
    bool compares = r->draw == draw_two || r->draw == draw_loss;
    double x[MOST_ELEMENTS];

    if (r->draw == draw_points)
        return is_apart(d, s);
    if (r->draw == draw_surface) /* any numbers make one that crosses itself */
        return false;
    if (!compares || s->ins < 2 || !(r->kind == 'd' || r->kind == 'q') ||
        !is_fraction(d->p->value[s->in[0]].dtype))
        return true;
    int64_t n = load_all(x, sherd_sub(d->plain[s->in[0]], d->plain[s->in[1]]));
    bool good = n >= 0;
    for (int64_t i = 0; i < n && good; i++)
        for (int b = 0; b < LEN(bends) && good; b++)
            good = fabs(fabs(x[i]) - bends[b]) > (d->p->narrow ? 1e-3 : 1e-6);
    return good;
}

/* Whether a gradient comes from the results to something. */
static inline bool flows(const drawing *d, const step *s)
{
    bool some = false;

    for (int i = 0; i < s->ins; i++)
        some |= d->p->grows[s->in[i]];
    return some && s->call.row->run != run_detach && s->call.row->run != run_write;
}

static inline bool draw_step(drawing *d, step *s)
{
    const row *r = &rows[roll(&d->dice, LEN(rows))];
    act a = {.p = &s->call, .generator = &d->generator};
    sherd_tensor *result;

    s->kind = CALL;
    if (!draw_operands(d, s, r) || !is_decided(d, s))
        return false;
    for (int i = 0; i < s->ins; i++)
        a.in[i] = d->plain[s->in[i]];
    result = r->run(&a);
    s->out[0] = add_value(d, result);
    s->outs = a.more ? 2 : 1;
    s->out[1] = a.more ? add_value(d, a.more) : 0;
    for (int i = 0; i < s->outs && s->out[i] >= 0; i++)
        d->p->grows[s->out[i]] = flows(d, s) && is_fraction(d->p->value[s->out[i]].dtype);
    return s->out[0] >= 0 && s->out[1] >= 0;
}

/* Moves change no value. */
static inline bool draw_move(drawing *d, step *s, int count)
{
    bool good = true;

    s->kind = count > 1 ? MANY : MOVE;
    s->ins = s->outs = count;
    s->seed = (uint64_t)roll(&d->dice, 1 << 30);
    for (int i = 0; i < count; i++) {
        s->in[i] = count > 1 ? roll(&d->dice, d->p->values - i) : draw_value(d);
        s->out[i] = add_value(d, d->plain[s->in[i]]);
        good &= s->out[i] >= 0;
        if (s->out[i] >= 0)
            d->p->grows[s->out[i]] = count == 1 && d->p->grows[s->in[i]];
    }
    return good;
}

/* ---- modules --------------------------------------------------------------------------------- */

static inline bool add_once(int *list, int *count, int v)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == v)
            return true;
    if (*count == SHERD_MAX_ARGS)
        return false;
    list[(*count)++] = v;
    return true;
}

/* What goes into steps and what comes out: what others use, or nobody. False: too many, or
 * nothing. */
static inline bool connect(const program *p, segment *g)
{
    bool inside[MOST_VALUES] = {false}, good = true;

    for (int s = g->begin; s < g->end; s++)
        for (int i = 0; i < p->step[s].outs; i++)
            inside[p->step[s].out[i]] = true;
    for (int s = g->begin; s < g->end; s++)
        for (int i = 0; i < p->step[s].ins; i++)
            if (!inside[p->step[s].in[i]])
                good &= add_once(g->in, &g->ins, p->step[s].in[i]);
    for (int s = g->end; s < p->steps; s++)
        for (int i = 0; i < p->step[s].ins; i++)
            if (inside[p->step[s].in[i]])
                good &= add_once(g->out, &g->outs, p->step[s].in[i]);
    for (int v = 0; v < p->values; v++)
        if (inside[v] && !p->used[v])
            good &= add_once(g->out, &g->outs, v);
    return good && g->ins > 0 && g->outs > 0;
}

static inline void draw_segment(drawing *d, int begin, int end, int parent)
{
    program *p = d->p;
    int from = begin + roll(&d->dice, end - begin), length = 1 + roll(&d->dice, end - from);
    segment g = {.begin = from, .end = from + length, .parent = parent};

    g.checkpointed = roll(&d->dice, 3) > 0;
    g.resharded = roll(&d->dice, 2);
    if (p->segments < MOST_SEGMENTS && connect(p, &g))
        p->segment[p->segments++] = g;
}

static inline void draw_segments(drawing *d)
{
    program *p = d->p;

    if (p->steps == 0 || roll(&d->dice, 4) == 0)
        return;
    draw_segment(d, 0, p->steps, -1);
    if (p->segments && roll(&d->dice, 2))
        draw_segment(d, p->segment[0].begin, p->segment[0].end, 0);
    if (p->segments && p->segment[0].end < p->steps)
        draw_segment(d, p->segment[0].end, p->steps, -1);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* One step more: a move of so many values, or a call. False: it did not fit, and all is as it
 * was. */
static inline bool try_step(drawing *d, int moved)
{
    program *p = d->p;
    step *s = &p->step[p->steps];
    int values = p->values;
    sherd_generator before = d->generator;
    bool narrow = p->narrow;

    *s = (step){0};
    if (moved ? draw_move(d, s, moved) : draw_step(d, s)) {
        for (int i = 0; i < s->ins; i++)
            p->used[s->in[i]] = true;
        p->steps++;
        return true;
    }
    p->values = values;
    p->narrow = narrow;
    d->generator = before;
    return false;
}

static inline void draw_program(drawing *d, sherd_world *world, program *p, uint64_t seed)
{
    bool recorded = sherd_set_recording(world, false);
    int wanted;

    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->dtype = seed % 2 ? SHERD_F32 : SHERD_F64;
    d->world = world;
    d->p = p;
    d->dice = seed * 2654435761u + 12345;
    d->generator = sherd_generator_named("graph");
    roll(&d->dice, 2);
    wanted = 4 + roll(&d->dice, MOST_STEPS - 3);
    for (int i = 0; i < 2; i++) {
        need w = {.kind = 'd', .dtype = p->dtype};
        draw_shape(&w, 0, 3, 40, &d->dice);
        seed_leaf(&w, &d->dice);
        add_leaf(d, &w);
    }
    for (int tries = 0; tries < 40 && p->steps < wanted; tries++) {
        int way = roll(&d->dice, 16);
        bool drawn = way < 4 && try_step(d, way == 0 ? 2 + roll(&d->dice, 2) : 1);
        for (int i = 0; i < 60 && way >= 4 && !drawn; i++)
            drawn = try_step(d, 0);
    }
    draw_segments(d);
    sherd_set_recording(world, recorded);
}

/* Backward, four ways: once; twice, where the second adds as much again; gradients that are asked
 * for; with a penalty on gradients. */
typedef enum flow { ONCE, ASKED, TWICE, PENALISED, FLOWS } flow;

static inline flow flow_of(const program *p)
{
    return (flow)(p->seed / 2 % FLOWS);
}

/* Whether a gradient can not be differentiated again: see sherd_gradients. */
static inline bool has_last_gradient(const program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const call_plan *c = &p->step[i].call;
        if (p->step[i].kind == CALL && (strcmp(c->row->name, "neighbourhood_attention") == 0 ||
                                        (c->row->run == run_attention_general && c->number[1])))
            return true;
    }
    return false;
}

/* Nobody used it. */
static inline bool is_final(const program *p, int v)
{
    return !p->leaf[v] && !p->used[v];
}

static inline void say_program(FILE *out, const program *p)
{
    static const char *const kinds[] = {"", "move", "move together"};

    fprintf(out, "SHERD_GRAPH=%llu:\n", (unsigned long long)p->seed);
    for (int v = 0; v < p->values; v++)
        if (p->leaf[v])
            fprintf(out, "  v%d is a leaf, %s, %d dims, kind %c%s\n", v,
                    sherd_dtype_name(p->value[v].dtype), p->value[v].ndim, p->value[v].kind,
                    p->wanted[v] ? ", with a gradient" : "");
    for (int i = 0; i < p->steps; i++) {
        const step *s = &p->step[i];
        fprintf(out, "  %d: v%d", i, s->out[0]);
        for (int j = 1; j < s->outs; j++)
            fprintf(out, ", v%d", s->out[j]);
        fprintf(out, " = %s", kinds[s->kind]);
        if (s->kind == CALL)
            say_call(out, &s->call);
        fprintf(out, " of");
        for (int j = 0; j < s->ins; j++)
            fprintf(out, " v%d", s->in[j]);
        fprintf(out, "\n");
    }
    for (int i = 0; i < p->segments; i++)
        fprintf(out, "  steps %d to %d are a module in %d%s%s\n", p->segment[i].begin,
                p->segment[i].end - 1, p->segment[i].parent,
                p->segment[i].checkpointed ? ", checkpointed" : "",
                p->segment[i].resharded ? ", input_reshard" : "");
}

#endif
