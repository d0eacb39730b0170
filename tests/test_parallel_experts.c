/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mixture of experts: its numbers by a loop over tokens, as a plain module and under every
 * arrangement of experts, features and tokens, with gradients; what it moves; what it refuses.
 */
#include "models.h"

#include "sherd/ops_reductions.h"

enum { ITEMS = 3, POSITIONS = 4, TOKENS = ITEMS * POSITIONS, WIDTH = 5, HIDDEN = 6, EXPERTS = 7 };

static const sherd_layer_options options = {.name = "mix", .dtype = SHERD_F64, .deviation = 0.5};

static sherd_module *new_mixture(sherd_world *world, int k, bool whole_scores)
{
    const sherd_experts_options how = {EXPERTS, k, HIDDEN, whole_scores, true};
    sherd_module *m = NULL;

    CHECK_OK(sherd_experts_create(&m, world, WIDTH, &how, &options));
    return m;
}

static sherd_tensor *input(sherd_world *world)
{
    return wave(world, SHERD_F64, 3, (int64_t[]){ITEMS, POSITIONS, WIDTH}, 7, 1, 0.2);
}

/* ---- by a loop over tokens ------------------------------------------------------------------- */

typedef struct weights {
    double router[EXPERTS][WIDTH], w1[EXPERTS][HIDDEN][WIDTH], w3[EXPERTS][HIDDEN][WIDTH],
        w2[EXPERTS][WIDTH][HIDDEN];
} weights;

static void read_into(sherd_module *m, const char *name, double *to)
{
    static _Thread_local double data[MOST];
    int64_t n = whole(sherd_module_parameter(m, name), data);

    memcpy(to, data, (size_t)n * sizeof *to);
}

static void read_weights(sherd_module *m, weights *w)
{
    read_into(sherd_module_find(m, "router"), "weight", &w->router[0][0]);
    read_into(m, "w1", &w->w1[0][0][0]);
    read_into(m, "w3", &w->w3[0][0][0]);
    read_into(m, "w2", &w->w2[0][0][0]);
}

static void add_expert(const weights *w, int e, const double *x, double score, double *y)
{
    for (int h = 0; h < HIDDEN; h++) {
        double gate = 0, up = 0;
        for (int i = 0; i < WIDTH; i++) {
            gate += w->w1[e][h][i] * x[i];
            up += w->w3[e][h][i] * x[i];
        }
        for (int i = 0; i < WIDTH; i++)
            y[i] += score * w->w2[e][i][h] * (gate / (1 + exp(-gate)) * up);
    }
}

/* One token: adds its choices and its softmax to what the balance needs. */
static void mix_token(const weights *w, int k, bool whole_scores, const double *x, double *y,
                      double *count, double *mean)
{
    double p[EXPERTS], sum = 0, chosen = 0;
    bool taken[EXPERTS] = {false};
    int choice[EXPERTS];

    for (int e = 0; e < EXPERTS; e++) {
        double logit = 0;
        for (int i = 0; i < WIDTH; i++)
            logit += w->router[e][i] * x[i];
        sum += p[e] = exp(logit);
    }
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < EXPERTS; e++)
            if (!taken[e] && (best < 0 || p[e] > p[best]))
                best = e;
        taken[choice[j] = best] = true;
        chosen += p[best];
        count[best]++;
    }
    for (int j = 0; j < k; j++)
        add_expert(w, choice[j], x, p[choice[j]] / (whole_scores ? sum : chosen), y);
    for (int e = 0; e < EXPERTS; e++)
        mean[e] += p[e] / sum / TOKENS;
}

static double mix_all(const weights *w, int k, bool whole_scores, const double *x, double *y)
{
    double count[EXPERTS] = {0}, mean[EXPERTS] = {0}, balance = 0;

    memset(y, 0, sizeof *y * TOKENS * WIDTH);
    for (int t = 0; t < TOKENS; t++)
        mix_token(w, k, whole_scores, x + (ptrdiff_t)t * WIDTH, y + (ptrdiff_t)t * WIDTH, count,
                  mean);
    for (int e = 0; e < EXPERTS; e++)
        balance += EXPERTS * (count[e] / TOKENS) * mean[e];
    return balance;
}

/* ---- modules --------------------------------------------------------------------------------- */

/* Output, balance, and the gradients of x, router, w1, w3, w2. */
typedef struct outcome {
    double y[TOKENS * WIDTH], balance[1], grad[5][MOST];
    int64_t count[5];
} outcome;

static void run(sherd_module *m, sherd_tensor *x, outcome *o)
{
    sherd_args in = {.count = 1, .value = {x}}, out;
    sherd_module *router = sherd_module_find(m, "router");
    sherd_tensor *of[] = {x, sherd_module_parameter(router, "weight"),
                          sherd_module_parameter(m, "w1"), sherd_module_parameter(m, "w3"),
                          sherd_module_parameter(m, "w2")};

    sherd_module_run(m, &in, &out);
    CHECK_EQ(out.count, 2);
    CHECK_EQ(sherd_tensor_ndim(out.value[0]), 3);
    whole(out.value[0], o->y);
    whole(out.value[1], o->balance);
    sherd_tensor *y = out.value[0];
    sherd_backward(sherd_add(sherd_sum(sherd_mul(y, y)), out.value[1]));
    for (int i = 0; i < 5; i++)
        o->count[i] = whole(sherd_grad(of[i]), o->grad[i]);
}

static void a_plain_mixture_is_the_loop(sherd_world *world)
{
    static _Thread_local weights w;
    static _Thread_local outcome o;
    static _Thread_local double x[MOST], y[TOKENS * WIDTH];

    for (int i = 0; i < 8; i++) {
        int k = i % 2 ? i : 1 + i / 3;
        bool whole_scores = i % 3 == 0;
        sherd_module *m = new_mixture(world, k, whole_scores);
        sherd_tensor *t = sherd_require_grad(input(world), true);
        read_weights(m, &w);
        whole(t, x);
        run(m, t, &o);
        CHECK_NEAR(o.balance[0], mix_all(&w, k, whole_scores, x, y), 1e-12);
        for (int e = 0; e < TOKENS * WIDTH; e++)
            CHECK_NEAR(o.y[e], y[e], 1e-12);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static const struct arrangement {
    const char *mesh;               /* of n ranks: "%d" stands for the rest of them */
    int ranks;                      /* divides the number of ranks */
    const char *experts, *features; /* axes, or NULL */
    const char *x;                  /* placements */
} arrangements[] = {{"ep=%d", 1, "ep", NULL, "S(0)"},
                    {"ep=%d", 1, "ep", NULL, "R"},
                    {"ep=%d", 1, "ep", NULL, "S(1)"},
                    {"ep=%d", 1, "ep", NULL, "S(2)"},
                    {"tp=%d", 1, NULL, "tp", "R"},
                    {"dp=%d", 1, NULL, NULL, "S(0)"},
                    {"dp=2,ep=%d", 2, "ep", NULL, "S(0)R"},
                    {"dp=2,ep=%d", 2, "ep", NULL, "S(0)S(0)"},
                    {"dp=2,ep=%d", 2, "ep", NULL, "S(0)S(1)"},
                    {"ep=2,tp=%d", 2, "ep", "tp", "S(0)R"},
                    {"ep=2,tp=%d", 2, "ep", "tp", "RR"},
                    {"tp=2,ep=%d", 2, "ep", "tp", "RS(1)"}};

static sherd_module *arrange(sherd_world *world, const struct arrangement *a,
                             const sherd_mesh *mesh, int k)
{
    sherd_module *m = new_mixture(world, k, false);
    const sherd_parallel_entry by_expert = {"", sherd_expert_parallel()},
                               by_feature = {"", sherd_expert_tensor_parallel()};

    if (a->experts)
        CHECK_OK(sherd_parallelize(m, mesh, a->experts, &by_expert, 1));
    if (a->features)
        CHECK_OK(sherd_parallelize(m, mesh, a->features, &by_feature, 1));
    if (!a->experts && !a->features)
        CHECK_OK(sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL));
    return m;
}

static void every_arrangement_is_the_plain_one(sherd_world *world)
{
    static _Thread_local outcome plain, o;
    int ranks = sherd_world_ranks(world);

    for (size_t i = 0; i < LEN(arrangements); i++) {
        const struct arrangement *a = &arrangements[i];
        const sherd_mesh *mesh = NULL;
        char text[32];
        if (ranks % a->ranks)
            continue;
        snprintf(text, sizeof text, a->mesh, ranks / a->ranks);
        CHECK_OK(sherd_mesh_parse(&mesh, world, text));
        for (int k = 1; k < 4; k++) {
            sherd_scope_begin(world);
            sherd_module *m = new_mixture(world, k, false), *made = arrange(world, a, mesh, k);
            run(m, sherd_require_grad(input(world), true), &plain);
            run(made, sherd_require_grad(spread(input(world), mesh, a->x), true), &o);
            bool good = CHECK_NEAR(o.balance[0], plain.balance[0], 1e-12);
            for (int e = 0; e < TOKENS * WIDTH; e++)
                good = CHECK_NEAR(o.y[e], plain.y[e], 1e-12) && good;
            for (int p = 0; p < 5; p++)
                for (int64_t e = 0; CHECK_EQ(o.count[p], plain.count[p]) && e < o.count[p]; e++)
                    good = CHECK_NEAR(o.grad[p][e], plain.grad[p][e], 1e-11) && good;
            if (!good)
                fprintf(stderr, "%s, x %s, k %d\n", text, a->x, k);
            sherd_module_destroy(m);
            sherd_module_destroy(made);
            sherd_scope_end(world);
            CHECK_OK(sherd_world_check(world));
        }
    }
}

/* Experts stay: no rank ever has those of another, and only tokens move. */
static void weights_stay_where_they_are(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    char text[32];

    snprintf(text, sizeof text, "ep=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_module *m = arrange(world, &arrangements[0], mesh, 2);
    sherd_tensor *w1 = sherd_module_parameter(m, "w1");
    CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(w1)), "S(0)");
    CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(
                   sherd_module_parameter(sherd_module_find(m, "router"), "weight"))),
               "R");
    sherd_backward(sherd_sum(
        sherd_module_call(m, sherd_require_grad(spread(input(world), mesh, "S(0)"), true))));
    CHECK(sherd_tensor_layout(sherd_grad(w1)) == sherd_tensor_layout(w1));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void bad_mixtures_are_refused(sherd_world *world)
{
    static const sherd_experts_options bad[] = {{0, 1, 4, false, false},
                                                {4, 0, 4, false, false},
                                                {4, 5, 4, false, false},
                                                {4, 1, 0, false, false}};
    const sherd_experts_options good = {4, 2, 4, false, false};
    const sherd_layer_options biased = {.bias = true};
    sherd_module *m = (sherd_module *)&m;

    for (size_t i = 0; i < LEN(bad); i++)
        CHECK_EQ(sherd_experts_create(&m, world, 4, &bad[i], NULL), SHERD_EINVAL);
    CHECK(m == NULL);
    CHECK_EQ(sherd_experts_create(&m, world, 0, &good, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_experts_create(&m, world, 4, &good, &biased), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "experts have no bias") != NULL);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_experts_create(&m, world, 4, &good, NULL));
    sherd_module_call(m, wave(world, SHERD_F32, 2, (int64_t[]){3, 5}, 1, 1, 0));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it takes [..., 4]") != NULL);
    sherd_module_destroy(m);
}

static void styles_need_experts(sherd_world *world)
{
    const sherd_parallel_entry by_expert = {"", sherd_expert_parallel()},
                               by_feature = {"", sherd_expert_tensor_parallel()};
    sherd_module *m = NULL;
    const sherd_mesh *mesh = NULL;
    char text[32];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    CHECK_OK(sherd_linear_create(&m, world, 4, 4, NULL));
    CHECK_EQ(sherd_parallelize(m, mesh, "x", &by_expert, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it has no parameter of three dims") != NULL);
    CHECK_EQ(sherd_parallelize(m, mesh, "x", &by_feature, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it needs parameters w1, w2 and w3 of three dims") !=
          NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void making_one_may_lack_memory(sherd_world *world)
{
    int64_t n = 1;

    for (sherd_status status = SHERD_ENOMEM; status != SHERD_OK && n < 300; n++) {
        const sherd_experts_options how = {EXPERTS, 2, HIDDEN, false, true};
        sherd_module *m = NULL;
        sherd_world_fail_allocation(world, n);
        status = sherd_experts_create(&m, world, WIDTH, &how, &options);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && !m));
        sherd_module_destroy(m);
        (void)sherd_world_check(world);
    }
    CHECK(n > 5 && n < 300);
}

static const check_test tests[] = {
    {TEST(a_plain_mixture_is_the_loop), {1, 2}},
    {TEST(every_arrangement_is_the_plain_one), {1, 2, 3, 4, 8}},
    {TEST(weights_stay_where_they_are), {1, 2, 3}},
    {TEST(bad_mixtures_are_refused), {1, 2}},
    {TEST(styles_need_experts), {1, 2}},
    {TEST(making_one_may_lack_memory), {1}},
};
CHECK_MAIN(tests)
