/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank computes with, for people: names out of the kernel table, and rates measured now. */
#include "sherd/info.h"
#include "world/world.h"

sherd_info sherd_world_info(const sherd_world *world)
{
    if (!world)
        return (sherd_info){.kernels = "", .gemm = ""};
    const sherd__kernels *kernels = &sherd__world_kernels(world)->f32;
    sherd__rates rates = sherd__measure_rates(kernels);

    return (sherd_info){
        .kernels = kernels->name,
        .gemm = kernels->gemm_name,
        .peak = 1e9 * rates.peak,
        .gemm_rate = 1e9 * rates.gemm,
    };
}
