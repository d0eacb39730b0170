/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few numbers of each rank, reduced over a mesh: all ranks get those of all, as words of their
 * bits, and each reduces them in the same order. Costs one small exchange.
 */
#include "sherd/numbers.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "layout/layout.h"
#include "words.h"
#include "world.h"

/* Ranks that reduce otherwise made another call: so they are found. */
static const char *const functions[] = {
    [SHERD_SUM] = "sherd_reduce_numbers (sum)",         [SHERD_AVG] = "sherd_reduce_numbers (avg)",
    [SHERD_MIN] = "sherd_reduce_numbers (min)",         [SHERD_MAX] = "sherd_reduce_numbers (max)",
    [SHERD_PRODUCT] = "sherd_reduce_numbers (product)",
};

enum { ON_STACK = 256 };

/* Of a minimum and a maximum NaN stays. */
static double join(sherd_reduce_op op, double a, double b)
{
    switch (op) {
    case SHERD_MIN:
        return -sherd__larger_number(-a, -b);
    case SHERD_MAX:
        return sherd__larger_number(a, b);
    case SHERD_PRODUCT:
        return a * b;
    default:
        return a + b;
    }
}

/* all[ranks][count] into numbers[count]. */
static void reduce(double *numbers, int count, const int64_t *all, int64_t ranks,
                   sherd_reduce_op op)
{
    for (int i = 0; i < count; i++) {
        double so_far = sherd__number_of(all[i]);
        for (int64_t r = 1; r < ranks; r++)
            so_far = join(op, so_far, sherd__number_of(all[r * count + i]));
        numbers[i] = op == SHERD_AVG ? so_far / (double)ranks : so_far;
    }
}

/* Room for the words of this rank, then for those of all. */
static bool share(double *numbers, int count, const sherd_mesh *mesh, sherd_reduce_op op,
                  int64_t *room)
{
    sherd_world *world = sherd__space_world(mesh->space);

    memcpy(room, numbers, (size_t)count * sizeof *room);
    if (!sherd__share(world, mesh, functions[op], room, count, room + count))
        return false;
    reduce(numbers, count, room + count, mesh->count, op);
    return true;
}

/* False: the alarm is raised. */
static bool are_valid(const double *numbers, int count, const sherd_mesh *mesh, sherd_reduce_op op)
{
    static const char function[] = "sherd_reduce_numbers";
    const sherd__argument need[] = {{count > 0 ? "numbers" : NULL, numbers}, {NULL, NULL}};
    sherd_world *world = sherd__space_world(mesh->space);

    if (sherd__require(sherd__world_diag(world), function, need)) {
        sherd__raise_diag(world);
        return false;
    }
    if (!sherd__reduce_op_name(op)) {
        sherd__raise(world, SHERD_EINVAL, "%s: %d is not a reduce op", function, (int)op);
        return false;
    }
    if (count <= SHERD_MAX_NUMBERS)
        return true;
    sherd__raise(world, SHERD_ELIMIT, "%s: count is %d, at most %d: of more make a tensor",
                 function, count, (int)SHERD_MAX_NUMBERS);
    return false;
}

bool sherd_reduce_numbers(double *numbers, int count, const sherd_mesh *mesh, sherd_reduce_op op)
{
    int64_t few[ON_STACK], *room = few;

    if (!mesh || !are_valid(numbers, count, mesh, op))
        return false;
    if (count <= 0)
        return true;
    sherd_world *world = sherd__space_world(mesh->space);
    size_t words = (size_t)(mesh->count + 1) * (size_t)count;
    if (words > ON_STACK)
        room = sherd__alloc(sherd__world_heap(world), words, sizeof *room);
    if (!room) {
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory", functions[op]);
        return false;
    }
    bool good = share(numbers, count, mesh, op, room);
    if (room != few)
        sherd__free(sherd__world_heap(world), room);
    return good;
}
