/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a model to a file and from it, on real ranks and dry: the same moves and memory, and the
 * file that was there stays as it was.
 */
#include "dry.h"
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

#include <sys/stat.h>

/* How the ranks share a model. */
typedef enum sharing { PLAIN, STYLES, SHARDED, WAYS } sharing;

typedef struct scene {
    const char *path;
    sharing from, to;
} scene;

static sherd_module *model(sherd_world *world, sharing how)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, SHERD_F32, 6, 8, 5);

    if (how == STYLES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, LEN(plan)));
    if (how == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
    return m;
}

static void step(sherd_module *m, sherd_optimizer *o)
{
    sherd_world *world = sherd_module_world(m);

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_module_call(m, wave(world, SHERD_F32, 2, SHAPE(4, 6), 1, 1, 0));
    sherd_backward(sherd_sum(y));
    sherd_optimizer_step(o, 0.05, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(world);
}

static void save_and_go_on(sherd_world *world, void *context)
{
    const scene *s = context;
    sherd_module *m = model(world, s->from), *other = model(world, s->to);
    sherd_optimizer *o = NULL, *after = NULL;
    sherd_writing *writing = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_adamw_create(&after, other, NULL));
    step(m, o);
    CHECK_OK(sherd_module_write(m, o, s->path));
    CHECK_OK(sherd_module_write_begin(&writing, m, o, s->path, NULL));
    step(m, o);
    CHECK_OK(sherd_writing_end(writing));
    CHECK_OK(sherd_module_read(other, after, s->path, NULL));
    step(other, after);
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(after);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void state_goes_the_same_ways_dry(sherd_world *world)
{
    account *both = calloc(2, sizeof *both);
    struct stat before = {0}, after = {0};
    char room[256];
    scene s = {.path = scratch(room, "dry")};

    for (int i = 0; i < WAYS * WAYS && CHECK(both); i++) {
        sherd_world *dry = dry_as(world);
        s.from = (sharing)(i / WAYS);
        s.to = (sharing)(i % WAYS);
        run_into(&both[0], world, save_and_go_on, &s);
        CHECK_OK(both[0].status);
        CHECK_EQ(stat(s.path, &before), 0);
        run_into(&both[1], dry, save_and_go_on, &s);
        if (!same_account(&both[0], &both[1]))
            fprintf(stderr, "  from %d to %d\n", (int)s.from, (int)s.to);
        CHECK_OK(sherd_world_close(dry));
        together(world);
        CHECK(stat(s.path, &after) == 0 && is_same_file(&before, &after));
    }
    free(both);
    together(world);
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(unlink(s.path), 0);
}

/* What is wrong with arguments is said as on real ranks, and nothing is made. */
static void a_dry_world_makes_no_file(sherd_world *world)
{
    sherd_world *dry = dry_as(world);
    char room[256], folder[256];
    const char *path = scratch(room, "never");
    sherd_module *m = model(dry, STYLES);
    sherd_file *file = NULL;
    struct stat about;

    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK(stat(path, &about) != 0);
    CHECK_EQ(sherd_file_open(&file, dry, path), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(dry), "No such file") != NULL);
    CHECK_EQ(sherd_world_check(dry), SHERD_OK);
    snprintf(folder, sizeof folder, "%s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK_EQ(sherd_module_write(m, NULL, folder), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(dry), "is not a regular file") != NULL);
    CHECK_OK(sherd_world_check(dry));
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK(stat(path, &about) != 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_close(dry));
}

static const check_test tests[] = {
    {TEST(state_goes_the_same_ways_dry), {1, 2, 3, 4, 8}},
    {TEST(a_dry_world_makes_no_file), {1, 2}},
};
CHECK_MAIN(tests)
