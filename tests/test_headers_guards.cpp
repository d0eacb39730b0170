/* SPDX-License-Identifier: Apache-2.0 */
/* sherd/guards.hpp: whatever leaves a block, what was begun in it is undone. */
#include "sherd/guards.hpp"

#include "sherd.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace
{

int failed = 0, passed = 0;

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
        sherd::world world;
        a_step_that_fails(world);
        tensors_that_are_kept(world);
        modules_that_end(world);
        expect(world.close() == SHERD_OK, "the world closes well");
        expect(world.close() == SHERD_OK, "again it is nothing");
    } catch (const std::exception &e) {
        expect(false, e.what());
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
