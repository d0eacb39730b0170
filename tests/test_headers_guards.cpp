/* SPDX-License-Identifier: Apache-2.0 */
/* sherd/guards.hpp: whatever leaves a block, what was begun in it is undone. */
#include "sherd/guards.hpp"

#include "sherd.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace
{

std::atomic<int> failed(0), passed(0);

void expect(bool good, const char *what)
{
    (good ? passed : failed)++;
    if (!good)
        std::fprintf(stderr, "not so: %s\n", what);
}

int64_t bytes(sherd_world *world)
{
    return sherd_world_memory(world).live_bytes;
}

/* A failed check throws its status and text, through scopes that end. */
void a_step_that_fails(sherd_world *world)
{
    const int64_t shape[] = {1000};
    int64_t before = bytes(world);

    try {
        sherd::scope outer(world);
        sherd::recording off(world, false);
        sherd::autocast low(world, SHERD_BF16);
        sherd_tensor *a = sherd_constant(world, SHERD_F32, shape, 1, 1);
        sherd::scope inner(world);
        expect(sherd_tensor_read(sherd_add(a, a)) != nullptr, "a sum");
        expect(bytes(world) >= before + 8000, "it is there");
        sherd_world_fail(world, SHERD_EINVAL, "the program's own");
        sherd::check(world);
        expect(false, "a check that throws");
    } catch (const sherd::error &e) {
        expect(e.status() == SHERD_EINVAL, "its status");
        expect(std::strstr(e.what(), "the program's own") != nullptr, "its text");
    }
    expect(bytes(world) == before, "all is released");
    expect(sherd_set_recording(world, true), "recording is on again");
    expect(sherd_autocast(world) == SHERD_DTYPE_NONE, "autocast is off again");
}

void a_world_that_does_not_open()
{
    setenv("SHERD_TIMEOUT", "1min", 1);
    try {
        sherd::world world;
        expect(false, "a world that throws");
    } catch (const sherd::error &e) {
        expect(e.status() == SHERD_EINVAL, "the status of opening");
        expect(std::strstr(e.what(), "SHERD_TIMEOUT=1min") != nullptr, "the text of opening");
    }
    unsetenv("SHERD_TIMEOUT");
}

/* Another function opens it: its options get the text, and its failure is thrown. */
void a_world_of_another_opening()
{
    sherd::world alone(nullptr, sherd_world_alone);
    expect(sherd_world_ranks(alone) == 1, "a world alone");
    sherd::world paper(nullptr, [](sherd_world **out, const sherd_world_options *) {
        return sherd_world_paper(out, 7);
    });
    expect(sherd_world_ranks(paper) == 7, "a paper world");
    const sherd_world_options wrong = [] {
        sherd_world_options o = sherd_world_options();
        o.region_bytes = 1;
        return o;
    }();
    try {
        sherd::world small(&wrong, sherd_world_alone);
        expect(false, "an opening that throws");
    } catch (const sherd::error &e) {
        expect(e.status() == SHERD_EINVAL && e.what()[0], "what its function says");
    }
}

void layouts_that_are_kept(sherd_world *world)
{
    sherd::kept_layout layout, copy;

    {
        sherd::scope step(world);
        const sherd_layout *made;
        sherd::check(world, sherd_layout_parse(&made, world, "[5(x),3] on (x=1)", nullptr));
        layout = sherd::kept_layout(made);
        copy = layout;
        sherd::kept_layout moved(std::move(layout));
        expect(moved == made && layout == nullptr, "it was moved");
    }
    expect(!std::strcmp(sherd_layout_text(copy), "[5(x),3] on (x=1)"), "a layout was kept");
}

/* A step in which the last rank throws something, in the way of its number. */
void throw_one_of(sherd_world *world, const sherd_layout *rows, int kind)
{
    sherd::scope step(world);
    sherd_tensor *a = sherd_constant_on(rows, SHERD_F64, 1);
    const sherd_layout *none = nullptr;

    expect(kind == 5 || sherd_tensor_text(a) != nullptr, "a text");
    sherd_scope_begin(world); /* which nobody ends */
    if (sherd_world_rank(world) == sherd_world_ranks(world) - 1) {
        if (kind == 0)
            throw std::runtime_error("blew up");
        if (kind == 1)
            throw 3;
        if (kind == 2)
            sherd::check(world,
                         sherd_layout_parse_placements(&none, sherd_layout_mesh(rows), 1,
                                                       sherd_layout_shape(rows), "S(9)", ""));
        if (kind == 3)
            sherd_world_fail(world, SHERD_ELIMIT, "too many");
    }
    expect(kind == 4 || !(sherd_item(sherd_sum(a)) > 8), "a sum that fails");
    if (kind % 2)
        sherd::check(world);
}

/* Whatever one rank throws, all ranks throw an error of the same text, and go on. */
int attempts(sherd_world *world, void *)
{
    static const char *const texts[] = {
        "rank 2: blew up", "rank 2: an exception of an unknown class",
        "rank 2: sherd_layout_parse_placements: column 3 of \"S(9)\"", "rank 2: too many"};
    const int depth = sherd_scope_depth(world);
    const sherd_layout *rows;

    sherd::check(world, sherd_layout_parse(&rows, world, "[8(x)] on (x=3)", nullptr));
    for (int kind = 0; kind < 6; kind++) {
        try {
            sherd::attempt(world, [&] { throw_one_of(world, rows, kind); });
            expect(kind >= 4, "an attempt that throws");
        } catch (const sherd::error &e) {
            expect(kind < 4 && std::strstr(e.what(), texts[kind]) == e.what(), e.what());
            expect(e.status() == (kind == 3 ? SHERD_ELIMIT : SHERD_EINVAL), "its status");
            expect(e.on_all_ranks(world) && !e.on_all_ranks(nullptr), "on all ranks");
        }
        expect(sherd_scope_depth(world) == depth, "scopes that were left open have ended");
    }
    return sherd_item(sherd_sum(sherd_constant_on(rows, SHERD_F64, 1))) == 8 ? 0 : 1;
}

/* The second time, one rank throws from within a call of the library. */
void halves(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_world *world = sherd_module_world(self);
    int *calls = static_cast<int *>(sherd_module_payload(self));

    if ((*calls)++ == 1 && sherd_world_rank(world) == 1)
        throw std::runtime_error("no half");
    out->value[out->count++] = sherd_scale(in->value[0], 0.5);
}

int forwards(sherd_world *world, void *)
{
    int calls = 0, thrown = 0;
    sherd_module_options options = sherd_module_options();
    sherd_module *made = nullptr;
    const sherd_layout *rows;

    options.payload = &calls;
    sherd::check(world, sherd_layout_parse(&rows, world, "[8(x)] on (x=3)", nullptr));
    sherd::check(world, sherd_module_create(&made, world, sherd::forward<halves>, &options));
    sherd::handle<sherd_module> module(made);
    for (int i = 0; i < 3; i++) {
        try {
            sherd::attempt(world, [&] {
                sherd_tensor *x = sherd_constant_on(rows, SHERD_F64, 1);
                double sum = sherd_item(sherd_sum(sherd_module_call(module.get(), x)));
                expect(i == 1 || sum == 4, "a sum of halves");
            });
        } catch (const sherd::error &e) {
            expect(!std::strcmp(e.what(), "rank 1: no half"), e.what());
            thrown++;
        }
    }
    return thrown == 1 ? 0 : 1;
}

void ranks_that_throw()
{
    sherd_world_options three = sherd_world_options();
    int exit_status = 1;

    three.ranks = 3;
    three.as = SHERD_THREADS;
    expect(sherd_spawn(&exit_status, &three, attempts, nullptr) == SHERD_OK, "they end well");
    expect(exit_status == 0, "and go on after each");
    exit_status = 1;
    expect(sherd_spawn(&exit_status, &three, forwards, nullptr) == SHERD_OK, "forwards end well");
    expect(exit_status == 0, "and can be called again");
}

void tensors_that_are_kept(sherd_world *world)
{
    const int64_t shape[] = {1000};
    int64_t before = bytes(world);
    sherd::kept copy;

    {
        sherd::kept first;
        {
            sherd::scope step(world);
            first = sherd::kept(sherd_constant(world, SHERD_F32, shape, 1, 3));
        }
        copy = first;
        sherd::kept moved(std::move(first));
        expect(static_cast<const float *>(sherd_tensor_read(moved))[999] == 3, "it was kept");
    }
    expect(static_cast<const float *>(sherd_tensor_read(copy))[999] == 3, "so is the copy");
    copy = sherd::kept();
    expect(bytes(world) == before, "the last one has released it");
}

void modules_that_end(sherd_world *world)
{
    int64_t before = bytes(world);

    {
        sherd_module *m = nullptr;
        sherd::check(world, sherd_linear_create(&m, world, 30, 40, nullptr));
        sherd::handle<sherd_module> model(m);
        sherd_optimizer *o = nullptr;
        sherd::check(world, sherd_sgd_create(&o, model.get(), nullptr));
        sherd::handle<sherd_optimizer> optimizer(o);
        sherd::scope step(world);
        const int64_t shape[] = {2, 30};
        sherd_tensor *x = sherd_constant(world, SHERD_F32, shape, 2, 1);
        expect(sherd_tensor_read(sherd_module_call(model.get(), x)) != nullptr, "a forward");
        expect(bytes(world) >= before + 30 * 40 * 4, "parameters");
    }
    expect(bytes(world) == before, "they are gone");
    try {
        sherd_module *m = nullptr;
        sherd::check(world, sherd_linear_create(&m, world, -1, 40, nullptr));
        expect(false, "a create that throws");
    } catch (const sherd::error &e) {
        expect(e.status() == SHERD_EINVAL && e.what()[0], "its status and text");
    }
}

} // namespace

int main()
{
    try {
        a_world_that_does_not_open();
        a_world_of_another_opening();
        ranks_that_throw();
        sherd::world world;
        a_step_that_fails(world);
        tensors_that_are_kept(world);
        layouts_that_are_kept(world);
        modules_that_end(world);
        expect(world.close() == SHERD_OK, "the world closes well");
        expect(world.close() == SHERD_OK, "again it is nothing");
    } catch (const std::exception &e) {
        expect(false, e.what());
    }
    std::printf("%d passed, %d failed\n", passed.load(), failed.load());
    return failed != 0;
}
