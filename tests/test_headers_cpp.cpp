/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers as C++17: they compile without a warning, also of casts as in C, and what they declare links as C. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wold-style-cast"
#include "sherd.h"
#pragma GCC diagnostic pop

#include <cstdio>
#include <string>

int main()
{
    const int64_t shape[] = {5, 3};
    const sherd_placement placements[] = {sherd_replicate(), sherd_shard(-1)};
    sherd_world *world = nullptr;
    const sherd_mesh *mesh = nullptr;
    const sherd_layout *layout = nullptr;
    bool good = sherd_world_paper(&world, 4) == SHERD_OK &&
                sherd_mesh_parse(&mesh, world, "2x2") == SHERD_OK &&
                sherd_layout_create(&layout, mesh, 2, shape, placements, nullptr) == SHERD_OK;

    good = good && std::string(sherd_layout_text(layout)) == "[5,3(a1)] on (a0=2,a1=2)";
    good = good && sherd_rowwise().apply != nullptr;
    good = sherd_world_close(world) == SHERD_OK && good;
    std::printf("%d passed, %d failed\n", good ? 1 : 0, good ? 0 : 1);
    return good ? 0 : 1;
}
