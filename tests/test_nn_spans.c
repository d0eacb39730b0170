/* SPDX-License-Identifier: Apache-2.0 */
/* A module of attention takes spans of documents, and a window. */
#include "sequences.h"

#include "sherd/layers.h"

/* Spans as an option are those of a keyword of the call; and they matter. */
static void modules_take_spans(sherd_world *world)
{
    enum { ALL = BATCH * POSITIONS * 8 };
    const int64_t shape[] = {BATCH, POSITIONS, 8}, lengths[] = {5, 11, 16, 0};
    sherd_tensor *spans = sherd_document_spans(world, lengths, BATCH, 2);
    scene s = {world, line(world), .dtype = SHERD_F64};
    sherd_tensor *x = numbers(&s, 1, 3, shape);
    double y[3][ALL];

    for (int i = 0; i < 3; i++) {
        const sherd_attention_options how = {.causal = true, .spans = i == 1 ? spans : NULL};
        const sherd_layer_options options = {.dtype = SHERD_F64, .name = "a"};
        sherd_module *m = NULL;
        sherd_args out, in = {.count = 1, .value = {x}};
        if (i == 0)
            in = (sherd_args){.count = 2, .value = {x, spans}, .name = {NULL, "spans"}};
        if (!CHECK_OK(sherd_attention_create(&m, world, 8, 2, &how, &options)))
            return;
        sherd_module_run(m, &in, &out);
        CHECK(sherd_full_read(y[i], sizeof y[i], out.value[0], SHERD_F64, -1));
        sherd_module_destroy(m);
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(y[0], y[2], sizeof y[0]) != 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(modules_take_spans), {1, 2}},
};
CHECK_MAIN(tests)
