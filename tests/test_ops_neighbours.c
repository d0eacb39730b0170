/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Neighbourhood attention on real ranks: plain ones against the definition, their gradients against
 * central differences, and any layout against the plain ones, bit for bit; and what travels: one
 * call for each direction, and each rank gets exactly what it lacks. Dims may be periodic.
 */
#include "fields.h"

#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_stencil.h"

enum { MOST = 6, Q = 0, K, V, OPERANDS };

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int dims, ndim;
    int64_t shape[MOST];
    sherd_neighbourhood_options o;
} scene;

/* ---- random cases ---------------------------------------------------------------------------- */

static void draw(scene *s, int dims)
{
    const int longest[] = {24, 9, 5};

    s->dims = dims;
    s->ndim = dims + 3;
    memset(&s->o, 0, sizeof s->o);
    s->o.scale = roll(&s->dice, 2) ? 0.7 : 0;
    s->shape[0] = between(&s->dice, 1, 2);
    for (int d = 0; d < dims; d++) {
        int64_t k = 1 + 2 * roll(&s->dice, dims == 3 ? 2 : 4);
        int64_t dilation = dims == 3 ? 1 : between(&s->dice, 1, 3);
        if (k * dilation > longest[dims - 1])
            dilation = 1;
        s->o.kernel[d] = k;
        s->o.periodic[d] = roll(&s->dice, 3) == 0;
        s->o.dilation[d] = dilation == 1 && roll(&s->dice, 2) ? 0 : dilation;
        s->shape[1 + d] = between(&s->dice, (int)(k * dilation), longest[dims - 1]);
    }
    s->shape[dims + 1] = between(&s->dice, 1, 3);
    s->shape[dims + 2] = roll(&s->dice, 4) ? between(&s->dice, 1, 4) : between(&s->dice, 15, 35);
}

static sherd_tensor *apply(const scene *s, sherd_tensor *const *in)
{
    return sherd_neighbourhood_attention(in[Q], in[K], in[V], &s->o);
}

/* ---- the definition -------------------------------------------------------------------------- */

/*
 * Whether position i of a dim sees position j: they have the same rest by the dilation, and among
 * the positions of that rest j is one of the nearest `kernel`, counted out from i; where one side
 * has no more the other goes on.
 */
static bool sees(int64_t n, int64_t kernel, int64_t dilation, int64_t i, int64_t j)
{
    int64_t lo = i, hi = i;

    if ((j - i) % dilation)
        return false;
    for (int64_t have = 1, turn = 0; have < kernel; turn++) {
        if (turn % 2 == 0 && lo - dilation >= 0)
            lo -= dilation, have++;
        else if (turn % 2 == 1 && hi + dilation < n)
            hi += dilation, have++;
    }
    return j >= lo && j <= hi;
}

/* In a dim that goes around: those around i. */
static bool sees_around(int64_t n, int64_t kernel, int64_t dilation, int64_t i, int64_t j)
{
    for (int64_t m = -(kernel / 2); m <= kernel / 2; m++)
        if ((i + m * dilation + n) % n == j)
            return true;
    return false;
}

static bool sees_in_all(const scene *s, const int64_t *i, const int64_t *j)
{
    for (int d = 0; d < s->dims; d++)
        if (!(s->o.periodic[d] ? sees_around : sees)(s->shape[1 + d], s->o.kernel[d],
                                                     s->o.dilation[d] ? s->o.dilation[d] : 1, i[d],
                                                     j[d]))
            return false;
    return true;
}

static void position(const scene *s, int64_t number, int64_t *at)
{
    for (int d = s->dims - 1; d >= 0; d--) {
        at[d] = number % s->shape[1 + d];
        number /= s->shape[1 + d];
    }
}

/* out[batch,space,heads,width], with all pairs of positions looked at. */
static double *definition(const scene *s, const double *q, const double *k, const double *v)
{
    int64_t heads = s->shape[s->dims + 1], width = s->shape[s->dims + 2], space = 1, i[3], j[3];
    double scale = s->o.scale != 0 ? s->o.scale : 1 / sqrt((double)width);

    for (int d = 0; d < s->dims; d++)
        space *= s->shape[1 + d];
    int64_t rows = s->shape[0] * space * heads;
    double *out = calloc((size_t)(rows * width + 1), sizeof *out);
    for (int64_t row = 0; row < rows; row++) {
        int64_t batch = row / (space * heads), head = row % heads;
        double sum = 0;
        position(s, row / heads % space, i);
        for (int64_t to = 0; to < space; to++) {
            int64_t other = ((batch * space + to) * heads + head) * width;
            double score = 0;
            position(s, to, j);
            if (!sees_in_all(s, i, j))
                continue;
            for (int64_t w = 0; w < width; w++)
                score += q[row * width + w] * k[other + w] * scale;
            sum += exp(score);
            for (int64_t w = 0; w < width; w++)
                out[row * width + w] += exp(score) * v[other + w];
        }
        for (int64_t w = 0; w < width; w++)
            out[row * width + w] /= sum;
    }
    return out;
}

/* The change of <dy, out> along u in one operand, by central differences of the definition. */
static double slope(const scene *s, const double *const *in, int which, const double *u,
                    const double *dy, int64_t count)
{
    const double step = 1e-5;
    double sum = 0, *moved = malloc((size_t)(count + 1) * sizeof *moved);

    for (int side = -1; side <= 1; side += 2) {
        const double *at[OPERANDS] = {in[Q], in[K], in[V]};
        for (int64_t e = 0; e < count; e++)
            moved[e] = in[which][e] + side * step * u[e];
        at[which] = moved;
        double *out = definition(s, at[Q], at[K], at[V]);
        for (int64_t e = 0; e < count; e++)
            sum += side * dy[e] * out[e];
        free(out);
    }
    free(moved);
    return sum / (2 * step);
}

static void plain_is_the_definition(sherd_world *world)
{
    scene s = {.world = world, .dice = 21};

    for (int i = 0; i < 60; i++) {
        sherd_tensor *in[OPERANDS];
        const double *data[OPERANDS];
        sherd_scope_begin(world);
        draw(&s, 1 + i % 3);
        for (int k = Q; k <= V; k++) {
            in[k] = sherd_require_grad(numbers(world, &s.dice, s.ndim, s.shape), true);
            data[k] = sherd_tensor_read(in[k]);
        }
        sherd_tensor *out = apply(&s, in);
        if (!CHECK(!sherd_tensor_failed(out)))
            break;
        double *want = definition(&s, data[Q], data[K], data[V]);
        const double *got = sherd_tensor_read(out);
        for (int64_t e = 0; e < out->count; e++)
            CHECK_NEAR(got[e], want[e], 1e-13);
        free(want);
        sherd_tensor *dy = numbers(world, &s.dice, s.ndim, s.shape);
        sherd_backward_with(&out, &dy, 1, NULL);
        for (int k = Q; k <= V; k++) {
            sherd_tensor *u = numbers(world, &s.dice, s.ndim, s.shape);
            double want_slope =
                slope(&s, data, k, sherd_tensor_read(u), sherd_tensor_read(dy), u->count);
            CHECK_NEAR(dot(sherd_grad(in[k]), u), want_slope, 1e-7);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

static sherd_tensor *spread_out(scene *s, const sherd_mesh *mesh, sherd_tensor *plain)
{
    return sherd_require_grad(
        sherd_distribute(plain, draw_layout(&s->dice, mesh, s->ndim, s->shape), -1), true);
}

/* Half of the cases have k and v where q is, a sixth k and v alike, the others each where the dice
 * say. */
static void check_layout(scene *s, const sherd_mesh *mesh)
{
    sherd_tensor *leaf[OPERANDS], *spread[OPERANDS];
    int way = roll(&s->dice, 6);

    for (int i = Q; i <= V; i++) {
        sherd_tensor *plain = numbers(s->world, &s->dice, s->ndim, s->shape);
        bool alike = i == Q ? false : way < 3 || (way == 3 && i == V);
        spread[i] =
            alike ? sherd_require_grad(sherd_distribute(plain, spread[i - 1]->layout, -1), true)
                  : spread_out(s, mesh, plain);
        leaf[i] = sherd_require_grad(plain, true);
    }
    sherd_tensor *want = apply(s, leaf), *out = apply(s, spread);
    if (!CHECK(!sherd_tensor_failed(out) && !sherd_tensor_failed(want)))
        return;
    bool good = CHECK_NEAR(difference(out, want), 0, 0);
    sherd_tensor *dy = numbers(s->world, &s->dice, s->ndim, s->shape);
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&out, &dy, 1, NULL);
    for (int i = Q; i <= V; i++) {
        good = CHECK(sherd_grad(spread[i])->layout == spread[i]->layout) && good;
        good = CHECK_NEAR(difference(sherd_grad(spread[i]), sherd_grad(leaf[i])), 0, 0) && good;
    }
    if (!good)
        fprintf(stderr, "q %s k %s v %s -> %s\n", sherd_tensor_text(spread[Q]),
                sherd_tensor_text(spread[K]), sherd_tensor_text(spread[V]), sherd_tensor_text(out));
}

static void every_layout_has_the_bits_of_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 3000 : 36;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        sherd_scope_begin(world);
        draw(&s, 1 + roll(&s.dice, 3));
        check_layout(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- other dtypes ---------------------------------------------------------------------------- */

static void other_dtypes_are_rounded_f64(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double tolerance; /* of numbers of a unit */
    } cases[] = {{SHERD_F32, 2e-6}, {SHERD_BF16, 0.04}, {SHERD_F16, 0.005}};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 1 ? "1" : "2");
    scene s = {.world = world, .dice = 5};

    for (int i = 0; i < 30; i++) {
        sherd_tensor *narrow[OPERANDS], *wide[OPERANDS], *dy[2];
        sherd_dtype dtype = cases[i % 3].dtype;
        sherd_scope_begin(world);
        draw(&s, 1 + roll(&s.dice, 2));
        const sherd_layout *layout = draw_layout(&s.dice, mesh, s.ndim, s.shape);
        for (int k = Q; k <= V; k++) {
            sherd_tensor *t = sherd_cast(numbers(world, &s.dice, s.ndim, s.shape), dtype);
            wide[k] = sherd_require_grad(sherd_cast(t, SHERD_F64), true);
            narrow[k] = sherd_require_grad(sherd_distribute(t, layout, -1), true);
        }
        sherd_tensor *out = apply(&s, narrow), *want = apply(&s, wide);
        CHECK_NEAR(largest_difference(out, want), 0, cases[i % 3].tolerance);
        dy[0] = sherd_cast(numbers(world, &s.dice, s.ndim, s.shape), dtype);
        dy[1] = sherd_cast(dy[0], SHERD_F64);
        sherd_backward_with(&out, &dy[0], 1, NULL);
        sherd_backward_with(&want, &dy[1], 1, NULL);
        for (int k = Q; k <= V; k++)
            CHECK_NEAR(largest_difference(sherd_grad(narrow[k]), sherd_grad(wide[k])), 0,
                       4 * cases[i % 3].tolerance);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

/* Equal scores make averages: of 0 to 9 each element is that of what it sees, which near the ends
 * is what the end sees. */
static void equal_scores_are_averages(sherd_world *world)
{
    static const struct {
        const char *cuts;
        int kernel, dilation;
        const char *want[3];
    } cases[] = {
        {"1:4,3,3", 3, 1, {"1 1 2 3", "4 5 6", "7 8 8"}},
        {"1:1,8,1", 5, 1, {"2", "2 2 3 4 5 6 7 7", "7"}},
        {"1:4,3,3", 3, 3, {"3 4 5 3", "4 5 6", "4 5 6"}},
        {"1:0,9,1", 3, 2, {"", "2 3 2 3 4 5 6 7 6", "7"}},
    };
    static const int64_t shape[4] = {1, 10, 1, 1};
    const sherd_mesh *mesh = mesh_of(world, "3");

    for (int i = 0; i < LEN(cases); i++) {
        sherd_neighbourhood_options o = {.kernel = {cases[i].kernel},
                                         .dilation = {cases[i].dilation}};
        const sherd_layout *layout = layout_of(mesh, 4, shape, "S(1)", cases[i].cuts);
        sherd_tensor *v = indices_on(layout, SHERD_F64), *q = sherd_scale(v, 0);
        sherd_tensor *out = sherd_neighbourhood_attention(q, v, v, &o);
        const double *data = sherd_tensor_read(out);
        char text[128] = "";
        size_t at = 0;
        for (int64_t k = 0; data && k < out->count; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, k ? " %.12g" : "%.12g", data[k]);
        CHECK_TEXT(text, cases[i].want[sherd_world_rank(world)]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ShardTensor's own cases. Pieces that are thinner than the window are an error there, or a
 * hang. */
static void cases_of_natten(sherd_world *world)
{
    static const struct {
        int dims;
        int64_t length;
    } fields[] = {{1, 32}, {1, 64}, {2, 16}, {2, 32}};
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    for (int i = 0; i < LEN(fields); i++)
        for (int k = 3; k <= 5; k += 2) {
            int64_t n = fields[i].length;
            scene s = {.world = world,
                       .dice = (uint64_t)i,
                       .dims = fields[i].dims,
                       .ndim = fields[i].dims + 3,
                       .o = {.kernel = {k, k}}};
            sherd_tensor *plain[OPERANDS], *spread[OPERANDS];
            sherd_scope_begin(world);
            memcpy(s.shape, s.dims == 1 ? (int64_t[]){1, n, 2, 8} : (int64_t[]){1, n, n, 2, 8},
                   (size_t)s.ndim * sizeof *s.shape);
            for (int o = Q; o <= V; o++) {
                plain[o] = numbers(world, &s.dice, s.ndim, s.shape);
                spread[o] =
                    sherd_distribute(plain[o], layout_of(mesh, s.ndim, s.shape, "S(1)", NULL), -1);
            }
            sherd_tensor *out = apply(&s, spread);
            CHECK(out->layout == spread[Q]->layout);
            CHECK_NEAR(difference(out, apply(&s, plain)), 0, 0);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* From the first to the last of the positions that [lo, hi) see, or that see any of them: how
 * many. */
static int64_t spanned(int64_t n, int64_t kernel, int64_t lo, int64_t hi, bool queries)
{
    int64_t first = n, end = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = lo; j < hi; j++)
            if (queries ? sees(n, kernel, 1, i, j) : sees(n, kernel, 1, j, i)) {
                first = i < first ? i : first;
                end = i + 1;
            }
    return lo < hi ? end - first : 0;
}

/* How many positions of a field this rank lacks of those. */
static int64_t missing(const sherd_neighbourhood_options *o, const sherd_tensor *q, bool queries)
{
    sherd_box box = sherd_tensor_box(q);
    int64_t all = 1, own = 1;

    for (int d = 0; d < 2; d++) {
        int64_t lo = box.offset[1 + d], hi = lo + box.size[1 + d];
        all *= spanned(q->shape[1 + d], o->kernel[d], lo, hi, queries);
        own *= hi - lo;
    }
    return all - own;
}

/* Keys and values forward; backward them again, and queries, dout and two numbers a head of those
 * that see this rank's keys. */
static void check_bytes(sherd_world *world, const sherd_layout *layout)
{
    const sherd_neighbourhood_options o = {.kernel = {5, 3}};
    sherd_tensor *in[OPERANDS];

    for (int k = Q; k <= V; k++)
        in[k] = sherd_require_grad(sherd_constant_on(layout, SHERD_F64, 1), true);
    int64_t keys = missing(&o, in[Q], false), queries = missing(&o, in[Q], true);
    int64_t heads = in[Q]->local[0] * in[Q]->local[3] * 8;
    sherd_comm_reset(world);
    sherd_tensor *out = sherd_neighbourhood_attention(in[Q], in[K], in[V], &o);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received, keys * 2 * 4 * heads);
    CHECK(out->layout == layout);
    sherd_tensor *dy = sherd_constant_on(out->layout, SHERD_F64, 1);
    sherd_comm_reset(world);
    sherd_backward_with(&out, &dy, 1, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received,
             (keys * 2 * 4 + queries * (2 * 4 + 2)) * heads);
}

/* Pieces that are even, thinner than the window, empty; of both dims, with corners; and heads with
 * them. */
static void only_what_is_missing_travels(sherd_world *world)
{
    static const int64_t shape[5] = {2, 24, 7, 3, 4};
    static const struct {
        const char *mesh, *placements, *cuts;
    } cases[] = {
        {"2", "S(1)", NULL},           {"2", "S(1)", "1:1,23"},     {"3", "S(1)", NULL},
        {"3", "S(1)", "1:1,22,1"},     {"4", "S(1)", "1:2,0,1,21"}, {"2x2", "S(1)S(2)", NULL},
        {"2x2", "S(2)S(1)", "1:23,1"}, {"2x2", "S(1)S(3)", NULL},
    };

    for (int i = 0; i < LEN(cases); i++) {
        int ranks = cases[i].mesh[0] - '0';
        if (ranks * (cases[i].mesh[1] ? cases[i].mesh[2] - '0' : 1) == sherd_world_ranks(world))
            check_bytes(world, layout_of(mesh_of(world, cases[i].mesh), 5, shape,
                                         cases[i].placements, cases[i].cuts));
    }
    CHECK_OK(sherd_world_check(world));
}

/* Keys and values that all ranks have, or that are cut elsewhere, come as far as they are missing,
 * too. */
static void keys_may_lie_otherwise(sherd_world *world)
{
    static const int64_t shape[4] = {1, 12, 2, 4};
    const sherd_neighbourhood_options o = {.kernel = {3}};
    const sherd_mesh *mesh = mesh_of(world, "3");
    const sherd_layout *thirds = layout_of(mesh, 4, shape, "S(1)", NULL),
                       *cut = layout_of(mesh, 4, shape, "S(1)", "1:5,4,3"),
                       *whole = layout_of(mesh, 4, shape, "R", NULL);
    sherd_tensor *q = sherd_constant_on(thirds, SHERD_F64, 1),
                 *k = sherd_constant_on(cut, SHERD_F64, 1),
                 *v = sherd_constant_on(whole, SHERD_F64, 1);
    /* of [0,5), [3,9) and [7,12), where [0,5), [5,9) and [9,12) are */
    int64_t rows[3] = {0, 2, 2}, rank = sherd_world_rank(world);

    sherd_comm_reset(world);
    sherd_tensor *out = sherd_neighbourhood_attention(q, k, v, &o);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received, rows[rank] * 2 * 4 * 8);
    CHECK(out->layout == thirds);
    /* queries that are whole are sliced as the keys */
    sherd_comm_reset(world);
    out = sherd_neighbourhood_attention(v, k, k, &o);
    CHECK(out->layout == cut);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_OK(sherd_world_check(world));
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* The n-th allocation of the last rank fails, until it goes through: the same verdict on all,
 * nothing is left behind. */
static void any_allocation_may_fail(sherd_world *world)
{
    static const int64_t shape[4] = {2, 9, 2, 3};
    const sherd_neighbourhood_options o = {.kernel = {5}};
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1, over = false;
    char text[16];
    int failures = 0;

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    const sherd_layout *layout = layout_of(mesh, 4, shape, "S(1)", NULL);
    for (int64_t n = 1; !over; n++) {
        sherd_scope_begin(world);
        sherd_tensor *q = sherd_require_grad(sherd_constant_on(layout, SHERD_BF16, 1), true);
        sherd_tensor_read(q);
        sherd_world_fail_allocation(world, failing ? n : 0);
        sherd_backward(sherd_sum(sherd_neighbourhood_attention(q, q, q, &o)));
        sherd_grad(q);
        bool mine = failing && sherd_world_allocations(world) < n;
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        check_same(world, status);
        failures += status != SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_scope_begin(world);
        sherd_tensor *t = sherd_constant_on(layout_of(mesh, 0, NULL, "P(sum)", NULL), SHERD_F64, 0);
        *(double *)sherd_tensor_write(t) = mine;
        over = sherd_item(t) > 0;
        sherd_scope_end(world);
    }
    CHECK(failures > 10);
}

static const check_test tests[] = {
    {TEST(plain_is_the_definition), {1}},
    {TEST(every_layout_has_the_bits_of_plain), {1, 2, 3, 4, 8}},
    {TEST(other_dtypes_are_rounded_f64), {1, 2}},
    {TEST(equal_scores_are_averages), {3}},
    {TEST(cases_of_natten), {1, 2, 4, 8}},
    {TEST(only_what_is_missing_travels), {2, 3, 4}},
    {TEST(keys_may_lie_otherwise), {3}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
};
CHECK_MAIN(tests)
