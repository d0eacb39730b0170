/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world that closes while functions of the program's hang on its tensors: destroy functions of
 * hooks may still make tensors, apply operators, and add hooks that do so again. Nothing of that is
 * left behind.
 */
#include <malloc.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/scope.h"
#include "tensors.h"

enum { MADE = 200, WORLDS = 12 };

/* What a destroy function does: by operators, and with another hook, so many levels deep. */
typedef struct farewell {
    sherd_world *world;
    bool applies, retains;
    int levels;
    int *ended;
} farewell;

static sherd_tensor *unchanged(sherd_tensor *grad, void *payload)
{
    (void)payload;
    return grad;
}

static void hang(const farewell *what);

static void say_farewell(void *payload)
{
    farewell f = *(farewell *)payload;

    free(payload);
    ++*f.ended;
    for (int i = 0; i < MADE; i++) {
        sherd_tensor *t = sherd_constant(f.world, SHERD_F32, NULL, 0, 1);
        if (f.applies)
            t = sherd_add(sherd_require_grad(t, true), t);
        if (f.retains)
            sherd_tensor_retain(t);
    }
    if (--f.levels > 0)
        hang(&f);
}

/* On a leaf that lives as long as the world. */
static void hang(const farewell *what)
{
    sherd_tensor *leaf =
        sherd_require_grad(sherd_constant(what->world, SHERD_F32, NULL, 0, 2), true);
    farewell *mine = malloc(sizeof *mine);

    *mine = *what;
    sherd_tensor_retain(leaf);
    CHECK_OK(sherd_tensor_hook(NULL, leaf, unchanged, mine, say_farewell));
}

static void open_and_close(farewell f, bool applied_before)
{
    sherd_world *world = NULL;
    int ended = 0;

    if (!CHECK_OK(sherd_world_alone(&world, NULL)))
        return;
    f.world = world;
    f.ended = &ended;
    if (applied_before)
        sherd_add(sherd_constant(world, SHERD_F32, NULL, 0, 1),
                  sherd_constant(world, SHERD_F32, NULL, 0, 1));
    hang(&f);
    CHECK_OK(sherd_world_close(world));
    CHECK_EQ(ended, f.levels);
}

static void nothing_is_left_behind(sherd_world *unused)
{
    (void)unused;
    for (int way = 0; way < 16; way++) {
        const farewell f = {.applies = way & 1, .retains = way & 2, .levels = way & 4 ? 3 : 1};
        open_and_close(f, way & 8);
        size_t before = mallinfo2().uordblks;
        for (int i = 0; i < WORLDS; i++)
            open_and_close(f, way & 8);
        size_t after = mallinfo2().uordblks;
        /* A tensor has hundreds of bytes; malloc itself keeps some. */
        if (!CHECK(after <= before + WORLDS * MADE * 16))
            fprintf(stderr, "  way %d: %zu bytes more\n", way, after - before);
    }
}

static const check_test tests[] = {
    {TEST(nothing_is_left_behind), {1}},
};
CHECK_MAIN(tests)
