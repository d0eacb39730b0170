/* SPDX-License-Identifier: Apache-2.0 */
/* A price file read in a world, also one on paper: the price comes out, or the world says why
 * not. */
#include "check.h"
#include "world/world.h"

static void try_world(sherd_world *world)
{
    sherd_price price = {.links = 5};

    CHECK_EQ(sherd_price_parse(&price, world, "tp 1 2 x"), SHERD_EINVAL);
    CHECK_EQ(price.links, 5);
    CHECK(strstr(sherd_world_error(world),
                 "sherd_price_parse: line 1, column 8 of \"tp 1 2 x\": expected gamma"));
    CHECK_OK(sherd_price_parse(&price, world, "# mine\n* 2e-6 3e-12 4e-13\n"));
    CHECK_EQ(price.kind, SHERD_PRICE_LINKS);
    CHECK_EQ(price.links, 1);
    CHECK_TEXT(price.link[0].axis, "*");
    CHECK_EQ(price.link[0].alpha_picoseconds, 2000000);
    CHECK_EQ(price.link[0].beta_femtoseconds, 3000);
    CHECK_EQ(price.link[0].gamma_femtoseconds, 400);
}

static void a_price_is_read_in_every_world(sherd_world *world)
{
    sherd_world *paper = NULL;

    try_world(world);
    CHECK_OK(sherd_world_paper(&paper, 4096));
    try_world(paper);
    CHECK_OK(sherd_world_close(paper));
    CHECK_OK(sherd_world_check(world));
}

/* No memory for its text, no file: the price that was there stays. */
static void a_file_that_is_not_read_changes_nothing(sherd_world *world)
{
    static const char file[] = SHERD_SOURCE_DIR "/docs/prices/8-gpus-a-node.txt";
    sherd__heap *heap = sherd__world_heap(world);
    sherd__diag *diag = sherd__world_diag(world);
    sherd_price price = {.links = 5};
    int64_t live = heap->live;

    sherd_world_fail_allocation(world, 1);
    CHECK_EQ(sherd__price_load(&price, heap, diag, file, "a file"), SHERD_ENOMEM);
    sherd_world_fail_allocation(world, 0);
    CHECK_EQ(sherd__price_load(&price, heap, diag, "/", "a file"), SHERD_EINVAL);
    CHECK(strstr(diag->text, "\"/\" can not be read (Is a directory): expected a file"));
    CHECK_EQ(sherd__price_load(&price, heap, diag, "/dev/zero", "a file"), SHERD_EINVAL);
    CHECK(strstr(diag->text, "\"/dev/zero\" is not a price file"));
    CHECK_EQ(price.links, 5);
    CHECK_OK(sherd__price_load(&price, heap, diag, file, "a file"));
    CHECK(price.links == 2 && !price.straight);
    CHECK_EQ(heap->live, live);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_price_is_read_in_every_world), {1, 2, 3}},
    {TEST(a_file_that_is_not_read_changes_nothing), {1, 2}},
};
CHECK_MAIN(tests)
