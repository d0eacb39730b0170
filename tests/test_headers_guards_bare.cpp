/* SPDX-License-Identifier: Apache-2.0 */
/* sherd/guards.hpp compiled without exceptions and RTTI: statuses are returned, guards still undo. */
#include "sherd/guards.hpp"

#include "sherd.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "it is compiled with -fno-exceptions -fno-rtti"
#endif

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

void a_world_that_does_not_open()
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = sherd_world_options();

    options.error = text;
    setenv("SHERD_TIMEOUT", "1min", 1);
    {
        sherd::world world(&options);
        expect(world.status() == SHERD_EINVAL, "the status of opening");
        expect(!static_cast<sherd_world *>(world), "there is no world");
        expect(std::strstr(text, "SHERD_TIMEOUT=1min") != nullptr, "the text of opening");
        expect(sherd::check(world) == SHERD_EINVAL, "it can not be checked");
    }
    unsetenv("SHERD_TIMEOUT");
}

sherd_status step(sherd_world *world, bool fails)
{
    const int64_t shape[] = {1000};
    sherd::scope inner(world);
    sherd::kept a(sherd_constant(world, SHERD_F32, shape, 1, 1));

    expect(sherd_tensor_read(sherd_add(a, a)) != nullptr, "a sum");
    if (fails)
        sherd_world_fail(world, SHERD_EINVAL, "the program's own");
    return sherd::check(world);
}

void modules_that_end(sherd_world *world)
{
    sherd_module *m = nullptr;

    expect(sherd::check(world, sherd_linear_create(&m, world, 30, 40, nullptr)) == SHERD_OK,
           "a layer");
    sherd::handle<sherd_module> model(m);
    expect(sherd::check(world, sherd_linear_create(&m, world, -1, 40, nullptr)) == SHERD_EINVAL,
           "a layer that is refused");
}

} // namespace

int main()
{
    a_world_that_does_not_open();
    sherd::world world;
    expect(world.status() == SHERD_OK, "a world that opens");
    int64_t before = bytes(world);
    expect(step(world, true) == SHERD_EINVAL, "the status of a step");
    expect(std::strstr(sherd_world_error(world), "the program's own") != nullptr, "its text");
    expect(step(world, false) == SHERD_OK, "the next step");
    modules_that_end(world);
    expect(bytes(world) == before, "all is released");
    expect(world.close() == SHERD_OK, "the world closes well");
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
