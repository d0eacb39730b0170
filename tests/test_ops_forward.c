/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator on sharded operands equals itself on plain ones: under every placement of every operand (R, S(d),
 * P(sum)), with default cuts and with uneven ones and another shard order, on a line of ranks and on 2x2.
 */
#include "ops_cases.h"

enum { MOST_COMBINATIONS = 700 };

static const double tolerance = 1e-12;

/* One combination: the result, gathered, against the plain one. */
static bool equals_plain(const op_case *c, sherd_tensor **in, const double *want, int64_t n)
{
    return CHECK(distance(sherd_full(c->run(in)), want, n) <= tolerance);
}

static void sharded_equals_plain(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(cases); i++) {
        const op_case *c = &cases[i];
        sherd_tensor *plain[MOST_IN], *in[MOST_IN];
        double want[MOST_ELEMENTS];
        int64_t step, all = combinations(mesh, c, MOST_COMBINATIONS, &step);

        sherd_scope_begin(world);
        for (int j = 0; j < c->operands; j++)
            plain[j] = plain_operand(world, c, j, NULL);
        sherd_tensor *y = c->run(plain);
        int64_t n = sherd_tensor_count(y);
        copy_values(want, y);
        for (int64_t number = 0; number < all; number += step) {
            sherd_scope_begin(world);
            place_all(mesh, c, number, in);
            if (!equals_plain(c, in, want, n)) {
                say_layouts(c, in);
                number = all; /* one is enough */
            }
            sherd_scope_end(world);
        }
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
