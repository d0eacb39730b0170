/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes from one GPU's memory to another's: halos and what flows back through them, ghost
 * cells, channels, moves to other meshes. SHERD_DEVICE is set for this program; the GPU is
 * emulated, and runs late.
 */
#include "halos.h"

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/pipeline.h"

/* Whether only the GPU has the contents. */
static bool only_there(const sherd_tensor *t)
{
    return t->count == 0 || sherd__is_only_there(t);
}

/* Write `from` over `to`, which may be any view, on the GPU. */
static void overwrite(sherd_tensor *to, sherd_tensor *from)
{
    const void *src = sherd__device_data(from);
    void *dst = sherd__device_mutable(to);

    CHECK(src && dst);
    if (src && dst && to->count)
        sherd__device_copy_box(sherd__world_device(to->world), sherd_dtype_bytes(to->dtype),
                               to->ndim, to->local, dst, to->stride, src, from->stride);
}

/* ---- halos ----------------------------------------------------------------------------------- */

static int64_t wrong_elements(const scene *s, sherd_tensor *y)
{
    const double *data = sherd_tensor_read(y);
    sherd_box box;
    int64_t wrong = 0;

    CHECK_OK(sherd_halo_box(&box, s->layout, sherd_world_rank(s->world), &s->o));
    for (int64_t k = 0, count = count_of(&box); k < count; k++) {
        int64_t at = element(&box, sherd_layout_shape(s->layout), &s->o, k);
        wrong += data[k] != (at == NOWHERE ? s->o.value : (double)at);
    }
    return wrong;
}

/* Every rank gives each element of its halo the gradient 1: one for each time that it is read. */
static int64_t wrong_gradients(const scene *s, sherd_tensor *g)
{
    static _Thread_local double count[1024];
    const double *data = sherd_tensor_read(g);
    const sherd_box own = sherd_tensor_box(g);
    int64_t wrong = 0;

    memset(count, 0, sizeof count);
    for (int q = 0; q < sherd_world_ranks(s->world); q++) {
        sherd_box box;
        CHECK_OK(sherd_halo_box(&box, s->layout, q, &s->o));
        for (int64_t k = 0, n = count_of(&box); k < n; k++) {
            int64_t at = element(&box, sherd_layout_shape(s->layout), &s->o, k);
            if (at != NOWHERE)
                count[at]++;
        }
    }
    for (int64_t k = 0; data && k < g->count; k++)
        wrong += data[k] != count[global_of(&own, g->shape, k)];
    return data ? wrong : -1;
}

static void halos_stay_there(sherd_world *world)
{
    scene s = {.world = world, .dice = 77 + (uint64_t)sherd_world_ranks(world)};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 12; i++) {
        sherd_scope_begin(world);
        do
            draw(&s, mesh);
        while (s.layout->shard_axes == 0);
        s.o.begin = i % 2;
        sherd_tensor *x = sherd_scale(indices_on(s.layout, SHERD_F64), 1);
        x = sherd_require_grad(sherd_detach(x), true);
        sherd_tensor *y = sherd_halo(x, &s.o);
        CHECK(only_there(x) && only_there(y));
        sherd_backward(sherd_sum(sherd_scale(y, 1)));
        CHECK(only_there(sherd_grad(x)));
        CHECK_EQ(wrong_elements(&s, y), 0);
        CHECK_EQ(wrong_gradients(&s, sherd_grad(x)), 0);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* A field that the CPU steps stays there; one that the GPU steps is in its memory alone. */
static void ghosts_stay_where_they_are(sherd_world *world)
{
    const sherd_halo_options around = {.before[0] = {1, SHERD_BORDER_PERIODIC},
                                       .after[0] = {1, SHERD_BORDER_CONSTANT},
                                       .value = -7};
    const int64_t n = 13;
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, &n, "S(0)", NULL);
    sherd_ghosts *g = NULL;

    CHECK_OK(sherd_ghosts_create(&g, layout, SHERD_F64, &around));
    sherd_scope_begin(world);
    for (int step = 0; step < 6; step++) {
        sherd_tensor *piece = sherd_ghosts_tensor(g);
        sherd_box box = sherd_ghosts_box(g);
        bool there = step > 2;
        if (there) {
            overwrite(piece, sherd_add_scalar(piece, 1));
        } else {
            double *data = sherd_ghosts_data(g);
            for (int64_t i = 0; data && i < piece->count; i++)
                data[piece->offset + i] = (double)(sherd_tensor_box(piece).offset[0] + i);
        }
        if (piece->count)
            CHECK(sherd__is_there(piece) == there);
        CHECK(step % 2 ? sherd_ghosts_fill(&g, 1) : sherd_ghosts_begin_fill(&g, 1));
        CHECK(there ? only_there(piece) : !sherd__is_there(piece));
        sherd_tensor *sum = sherd_sum(sherd_scale(piece, 1)); /* of what is there now */
        CHECK_EQ(sherd_item(sum), 78 + 13 * (there ? step - 2 : 0));
        if (there && step < 5)
            continue;
        const double *cells = sherd_ghosts_peek(g);
        for (int64_t k = 0; cells && k < count_of(&box); k++) {
            int64_t at = element(&box, &n, &around, k);
            CHECK(cells[k] == (at == NOWHERE ? -7 : (double)at + (there ? step - 2 : 0)));
        }
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_ghosts_destroy(g);
}

/* ---- from one mesh to another ---------------------------------------------------------------- */

/* Eight sends, each of what is then written over, before anything is received. */
static void senders_run_ahead(sherd_world *world)
{
    enum { AHEAD = 7 };
    const sherd_mesh *from = mesh_of(world, "x=2"), *to = mesh_of(world, "x=1@2");
    const int64_t shape[] = {5, 40};
    sherd_channel *c = NULL;
    int rank = sherd_world_rank(world);

    CHECK_OK(sherd_channel_create(&c, from, to, NULL));
    sherd_scope_begin(world);
    for (int turn = 0; turn < 2; turn++) {
        if (rank < 2) {
            sherd_tensor *t =
                sherd_scale(indices_on(layout_of(from, 2, shape, "S(0)", NULL), SHERD_F64), 1);
            for (int i = 0; i < AHEAD; i++) {
                sherd_channel_send(c, &t, 1);
                overwrite(t, sherd_add_scalar(t, 1000));
                CHECK(only_there(t));
            }
        }
        /* The word of a rank that has sent all: what follows is received only then. */
        check_same(world, SHERD_OK);
        for (int i = 0; i < AHEAD && rank == 2; i++) {
            sherd_tensor *y;
            sherd_channel_receive(c, &y, 1);
            CHECK(only_there(y));
            const double *data = sherd_tensor_read(y);
            for (int64_t k = 0; data && k < y->count; k++)
                CHECK(data[k] == (double)(k + 1000 * i));
        }
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

/* Whether it is the sender or the receiver that has no memory, all ranks are told, and go on. */
static void lack_of_memory_ends_a_send_for_all(sherd_world *world)
{
    const sherd_mesh *from = mesh_of(world, "x=2"), *to = mesh_of(world, "x=1@2");
    const int64_t shape[] = {4, 3};
    sherd_channel *c = NULL;
    int rank = sherd_world_rank(world);

    CHECK_OK(sherd_channel_create(&c, from, to, NULL));
    for (int who = 0; who < 4; who++) { /* at last nobody */
        sherd_scope_begin(world);
        sherd_tensor *t = NULL, *y = NULL;
        if (rank < 2)
            t = sherd_scale(indices_on(layout_of(from, 2, shape, "S(0)", NULL), SHERD_F64), 1);
        if (rank == who && who < 3)
            sherd__device_lack(sherd__world_device(world), "out of memory for a test");
        if (rank < 2)
            sherd_channel_send(c, &t, 1);
        else if (rank == 2)
            sherd_channel_receive(c, &y, 1);
        if (who == 3 && rank == 2)
            CHECK_EQ(count_wrong(y, 1), 0);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), who < 3 ? SHERD_ENOMEM : SHERD_OK);
    }
    sherd_channel_destroy(c);
}

/* Whoever is in neither mesh goes on; pending sums are settled on the way. */
static void other_meshes_are_reached(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)", "P"};
    const sherd_mesh *from = mesh_of(world, "a=2@1,0"), *to = mesh_of(world, "b=2@0,2");
    const int64_t shape[] = {3, 5};

    for (int p = 0; p < LEN(placements); p++)
        for (int q = 0; q < 3; q++) {
            int64_t nowhere[SHERD_MAX_AXES] = {0};
            const sherd_layout *before = layout_of(from, 2, shape, placements[p], NULL),
                               *after = layout_of(to, 2, shape, placements[q], NULL);
            sherd_scope_begin(world);
            sherd_tensor *t = sherd_scale(indices_on(before, SHERD_F64), 1);
            sherd_tensor *y = sherd_redistribute(t, after, NULL);
            CHECK(only_there(y));
            CHECK_EQ(count_wrong(y, addends_of(before, nowhere, NULL)), 0);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {"halos_stay_there", halos_stay_there, {2, 3, 4}},
    {"ghosts_stay_where_they_are", ghosts_stay_where_they_are, {1, 2, 3, 8}},
    {"senders_run_ahead", senders_run_ahead, {3, 4}},
    {"lack_of_memory_ends_a_send_for_all", lack_of_memory_ends_a_send_for_all, {3, 4}},
    {"other_meshes_are_reached", other_meshes_are_reached, {3, 4}},
};

CHECK_MAIN(tests)
