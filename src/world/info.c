/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank computes with, for people: names out of the kernel table, and rates measured now. */
#include "sherd/info.h"
#include "vector/choose.h"
#include "vector/measure.h"
#include "world/world.h"

sherd_info sherd_world_info(const sherd_world *world)
{
    if (!world)
        return (sherd_info){.kernels = "", .gemm = ""};
    const sherd__kernel_set *kernels = sherd__world_kernels(world);
    sherd__rates rates = sherd__measure_rates(kernels);

    return (sherd_info){
        .kernels = kernels->f32.name,
        .gemm = sherd__gemm_name(kernels),
        .peak = 1e9 * rates.peak,
        .gemm_rate = 1e9 * rates.gemm,
        .bf16_peak = 1e9 * rates.bf16,
    };
}
