/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zero-bubble pipelines, there and back too, have the bits of 1F1B: losses, gradients, and what
 * hooks on gradients see, whatever a stage is made of: weights that are used twice, and by
 * operators that compute all gradients at once; tensor and data parallelism; modules that are
 * checkpointed or fully sharded.
 */
#include <sherd.h>

#include "pipelines.h"

enum { SPLIT = 1, CHECKPOINTED = 2, SHARDED = 4, HOOKED = 8, PARAMETERS = 64 };

typedef struct setup {
    const char *mesh[4]; /* of places; NULL: no more */
    int stages, how;
} setup;

typedef struct job {
    sherd_world *world;
    const setup *s;
    const sherd_mesh *mesh[4];
    int places;
    sherd_stage stage[STAGES_AT_MOST];
    sherd_pipeline *pipeline;
    double seen[PARAMETERS]; /* by the hooks of this rank's parameters */
} job;

/* x + net(x), where net is used twice, and a second tensor with a gain. */
static void mixed_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *gain = sherd_module_parameter(self, "gain"), *x = in->value[0];
    sherd_module *net = sherd_module_find(self, "net");
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "norm"), x);

    h = sherd_tanh(sherd_module_call(net, h));
    h = sherd_add(h, sherd_module_call(net, sherd_mul(h, gain)));
    out->count = 3;
    out->value[0] = sherd_add(x, h);
    out->value[1] = sherd_mul(in->value[1], sherd_square(gain));
    out->value[2] = in->value[2];
}

static sherd_module *make_mixed(sherd_world *world, int i)
{
    sherd_module *m = container(world, mixed_forward, NULL);
    sherd_module *net = add_layer(m, "net", container(world, gelu_forward, NULL));

    norm_layer(m, "norm", SHERD_F64, WIDTH, 5 * i);
    linear_layer(net, "w1", SHERD_F64, WIDTH, 2 * WIDTH, 5 * i + 1);
    linear_layer(net, "w2", SHERD_F64, 2 * WIDTH, WIDTH, 5 * i + 3);
    CHECK_OK(sherd_module_add_parameter(
        m, "gain", wave(world, SHERD_F64, 1, (int64_t[]){WIDTH}, 3 + i, 0.5, 1)));
    return m;
}

static sherd_tensor *look(sherd_tensor *grad, void *payload)
{
    double *seen = payload;
    const double *data = sherd_tensor_read(grad);
    sherd_box box = sherd_tensor_box(grad);
    bool some = data != NULL;

    for (int d = 0; d < sherd_tensor_ndim(grad); d++)
        some = some && box.size[d] > 0;
    if (some)
        *seen = 0.5 * *seen + data[0];
    return NULL;
}

/* Parameters of this rank's stages, of those from `first` to before `end`. */
static int parameters_of(const job *j, sherd_named_parameter *list, int first, int end)
{
    int count = 0;

    for (int i = first; i < end; i++)
        if (sherd_mesh_coordinate(j->stage[i].mesh, sherd_world_rank(j->world), NULL))
            count +=
                sherd_module_all_parameters(j->stage[i].module, list + count, PARAMETERS - count);
    return count;
}

static void lay_out(const job *j, sherd_module *m, const sherd_mesh *mesh)
{
    const sherd_parallel_entry plan[] = {{"net.w1", sherd_colwise()}, {"net.w2", sherd_rowwise()}};

    if (j->s->how & CHECKPOINTED)
        sherd_module_checkpoint(sherd_module_find(m, "net"), true);
    CHECK_OK(sherd_parallelize(m, mesh, "x", plan, j->s->how & SPLIT ? 2 : 0));
    if (j->s->how & SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "y", NULL));
}

/* `from_end`: places in the other order. */
static void open_job(job *j, sherd_world *world, const setup *s, sherd_pipeline_schedule schedule,
                     bool from_end)
{
    sherd_named_parameter list[PARAMETERS];

    *j = (job){.world = world, .s = s};
    for (; j->places < 4 && s->mesh[j->places]; j->places++)
        CHECK_OK(sherd_mesh_parse(&j->mesh[j->places], world, s->mesh[j->places]));
    for (int i = 0; i < s->stages; i++) {
        int place = place_of(i, j->places, schedule);
        const sherd_mesh *mesh = j->mesh[from_end ? j->places - 1 - place : place];
        j->stage[i] = (sherd_stage){mesh, make_mixed(world, i), NULL};
        lay_out(j, j->stage[i].module, j->stage[i].mesh);
    }
    for (int n = parameters_of(j, list, 0, s->stages); n-- > 0 && s->how & HOOKED;)
        CHECK_OK(sherd_tensor_hook(NULL, list[n].tensor, look, &j->seen[n], NULL));
    CHECK_OK(sherd_pipeline_create(&j->pipeline, world, j->stage, s->stages, schedule));
}

static void close_job(job *j)
{
    sherd_pipeline_destroy(j->pipeline);
    for (int i = 0; i < j->s->stages; i++)
        sherd_module_destroy(j->stage[i].module);
}

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;
    const char *placements = j->s->how & SHARDED ? "S(0) R" : "R R";

    if (stage > 0)
        return;
    sherd_tensor *x = spread(input_of(j->world, microbatch), j->stage[0].mesh, placements);
    in->value[0] = in->value[1] = x;
    in->value[2] = spread(indices_of(j->world, microbatch), j->stage[0].mesh, "R R");
    in->count = 3;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    (void)payload, (void)microbatch;
    return loss_of(out);
}

static bool same_bits(sherd_tensor *a, sherd_tensor *b)
{
    sherd_box box = sherd_tensor_box(a);
    size_t bytes = sizeof(double);

    for (int d = 0; d < sherd_tensor_ndim(a); d++)
        bytes *= (size_t)box.size[d];
    const void *x = sherd_tensor_read(a), *y = sherd_tensor_read(b);
    return sherd_tensor_layout(a) == sherd_tensor_layout(b) &&
           (bytes == 0 || (x && y && memcmp(x, y, bytes) == 0));
}

static void compare_stages(const job *a, const job *b, int first, int end)
{
    sherd_named_parameter x[PARAMETERS], y[PARAMETERS];
    int count = parameters_of(a, x, first, end);

    CHECK_EQ(parameters_of(b, y, first, end), count);
    for (int n = 0; n < count; n++) {
        sherd_tensor *g = sherd_grad(x[n].tensor), *h = sherd_grad(y[n].tensor);
        if (!CHECK(g && h && same_bits(g, h)))
            fprintf(stderr, "  gradient of %s.%s\n", x[n].path, x[n].name);
    }
}

static void run_case(sherd_world *world, const setup *s, int64_t count)
{
    sherd_microbatches work = {.count = count, .feed = feed, .loss = find_loss};
    int64_t saved = sherd_saved_bytes(world);
    job plain, zero;

    open_job(&plain, world, s, SHERD_PIPELINE_1F1B, false);
    open_job(&zero, world, s, SHERD_PIPELINE_ZERO_BUBBLE, false);
    for (int step = 0; step < 2; step++) { /* the second adds to the first */
        work.payload = &plain;
        double wanted = sherd_pipeline_run(plain.pipeline, &work);
        work.payload = &zero;
        double loss = sherd_pipeline_run(zero.pipeline, &work);
        CHECK(isfinite(loss) && loss == wanted);
        compare_stages(&plain, &zero, 0, s->stages);
        CHECK(memcmp(plain.seen, zero.seen, sizeof plain.seen) == 0);
        CHECK_EQ(sherd_saved_bytes(world), saved);
    }
    CHECK_OK(sherd_world_check(world));
    close_job(&zero);
    close_job(&plain);
}

/*
 * There and back, the second half of stages lies where 1F1B has it with its places in the other
 * order.
 */
static void run_there_and_back(sherd_world *world, const setup *s, int64_t count)
{
    sherd_microbatches work = {.count = count, .feed = feed, .loss = find_loss};
    job plain[2], v;

    for (int back = 0; back < 2; back++)
        open_job(&plain[back], world, s, SHERD_PIPELINE_1F1B, back);
    open_job(&v, world, s, SHERD_PIPELINE_ZERO_BUBBLE_V, false);
    for (int step = 0; step < 2; step++) {
        work.payload = &v;
        double loss = sherd_pipeline_run(v.pipeline, &work);
        for (int back = 0; back < 2; back++) {
            work.payload = &plain[back];
            CHECK_EQ(sherd_pipeline_run(plain[back].pipeline, &work), loss);
            compare_stages(&plain[back], &v, back * v.places, (back + 1) * v.places);
        }
    }
    CHECK_OK(sherd_world_check(world));
    close_job(&v);
    close_job(&plain[1]);
    close_job(&plain[0]);
}

static int places_of(const setup *s)
{
    int places = 0;

    while (places < 4 && s->mesh[places])
        places++;
    return places;
}

static void run_cases(sherd_world *world, const setup *list, int cases)
{
    static const int64_t counts[] = {1, 3, 4, 9};

    for (int c = 0; c < cases; c++)
        for (int n = 0; n < LEN(counts); n++) {
            sherd_scope_begin(world);
            run_case(world, &list[c], counts[n]);
            if (list[c].stages == 2 * places_of(&list[c]) && n % 2)
                run_there_and_back(world, &list[c], counts[n]);
            sherd_scope_end(world);
        }
}

static void one_place_has_the_bits(sherd_world *world)
{
    static const setup list[] = {{{"y=1,x=1"}, 1, HOOKED}, {{"y=1,x=1"}, 3, CHECKPOINTED}};
    run_cases(world, list, LEN(list));
}

static void two_places_have(sherd_world *world)
{
    static const setup list[] = {{{"y=1,x=1", "y=1,x=1@1"}, 2, HOOKED},
                                 {{"y=1,x=1", "y=1,x=1@1"}, 2, CHECKPOINTED | HOOKED},
                                 {{"y=1,x=1", "y=1,x=1@1"}, 4, 0},
                                 {{"y=1,x=1@1", "y=1,x=1@0"}, 5, CHECKPOINTED | HOOKED}};
    run_cases(world, list, LEN(list));
}

static void places_of_several_ranks_have(sherd_world *world)
{
    static const setup list[] = {{{"y=1,x=2", "y=1,x=2@2,3"}, 2, SPLIT | HOOKED},
                                 {{"y=2,x=1", "y=2,x=1@2,3"}, 2, SHARDED | HOOKED},
                                 {{"y=2,x=1", "y=2,x=1@3,2"}, 4, SHARDED | CHECKPOINTED},
                                 {{"y=1,x=1", "y=1,x=1@1", "y=1,x=1@2", "y=1,x=1@3"}, 4, HOOKED},
                                 {{"y=1,x=1", "y=1,x=1@1", "y=1,x=1@2"}, 8, 0}};
    run_cases(world, list, LEN(list));
}

static void places_of_other_sizes_have(sherd_world *world)
{
    static const setup list[] = {{{"y=1,x=2", "y=1,x=1@2"}, 3, SPLIT | CHECKPOINTED}};
    run_cases(world, list, LEN(list));
}

static void eight_ranks_have(sherd_world *world)
{
    static const setup list[] = {
        {{"y=2,x=2", "y=2,x=2@4,5,6,7"}, 2, SPLIT | SHARDED | CHECKPOINTED | HOOKED},
        {{"y=1,x=2", "y=1,x=2@2,3", "y=1,x=2@4,5", "y=1,x=2@6,7"}, 8, SPLIT}};
    run_cases(world, list, LEN(list));
}

static const check_test tests[] = {{TEST(one_place_has_the_bits), {1}},
                                   {TEST(two_places_have), {2}},
                                   {TEST(places_of_other_sizes_have), {3}},
                                   {TEST(places_of_several_ranks_have), {4}},
                                   {TEST(eight_ranks_have), {8}}};
CHECK_MAIN(tests)
