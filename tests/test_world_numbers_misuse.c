/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of numbers that ranks reduce: see misuse.h. */
#include "misuse.h"
#include "sherd/numbers.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

MISUSE(numbers_a_mesh_and_a_reduction_are_needed)
{
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(m->world);
    double x[2] = {1, 2};

    CHECK_OK(sherd_mesh_create(&mesh, m->world, 1, &ranks, (const char *[]){"x"}, NULL));
    ANSWERS(!sherd_reduce_numbers(x, 1, NULL, SHERD_SUM));
    FAILS(SHERD_EINVAL, sherd_reduce_numbers(NUL(x), 1, mesh, SHERD_SUM));
    FAILS(SHERD_EINVAL, sherd_reduce_numbers(x, 1, mesh, BAD((sherd_reduce_op)5, SHERD_SUM)));
    CHECK(sherd_reduce_numbers(x, 0, mesh, SHERD_SUM) &&
          sherd_reduce_numbers(x, -1, mesh, SHERD_SUM));
    FAILS(SHERD_ELIMIT, sherd_reduce_numbers(x, BAD(SHERD_MAX_NUMBERS + 1, 1), mesh, SHERD_SUM));
}

static const check_test tests[] = {
    {TEST(numbers_a_mesh_and_a_reduction_are_needed), {1, 2, 3}},
};
CHECK_MAIN(tests)
