/* SPDX-License-Identifier: Apache-2.0 */
/* sherd info: this machine, the kernels in use, and their speed, measured now on one core. */
#include <sched.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <sherd.h>

#include "cli.h"
#include "gpus.h"

/* Cores that this process may use. */
static int usable_cores(void)
{
    cpu_set_t mask;

    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT(&mask);
}

static void print_machine(const sherd_memory *memory)
{
    struct utsname system;
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    if (uname(&system) == 0)
        printf("system      %s %s, %s\n", system.sysname, system.release, system.machine);
    printf("cores       %ld, of which this process may use %d\n", sysconf(_SC_NPROCESSORS_ONLN),
           usable_cores());
    printf("memory      %.1f GiB, of which tensors may take %.1f GiB\n", bytes / (1 << 30),
           (double)memory->limit_bytes / (1 << 30));
    printf("transports  arena (processes of one machine, up to %d), threads\n", SHERD_MAX_RANKS);
}

static void print_compute(const sherd_info *info)
{
    printf("kernels     %s\n", info->kernels);
    printf("GEMM        %s\n", info->gemm);
    printf("peak        %.1f GFLOP/s a core (f32, multiply-adds in registers)\n",
           1e-9 * info->peak);
    if (info->bf16_peak > 0)
        printf("bf16 peak   %.1f GFLOP/s a core\n", 1e-9 * info->bf16_peak);
    printf("GEMM rate   %.1f GFLOP/s a core (f32, 1024^3), %.0f %% of the peak\n",
           1e-9 * info->gemm_rate, info->peak > 0 ? 100 * info->gemm_rate / info->peak : 0);
}

int cli_info(int argc, char **argv)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.no_pin = true, .error = error};
    sherd_world *world;

    if (argc > 1)
        return cli_refuse("info", "it takes no arguments, not \"%.100s\"", argv[1]);
    if (sherd_world_alone(&world, &options) != SHERD_OK) {
        fprintf(stderr, "sherd info: %s\n", error);
        return CLI_FAILED;
    }
    sherd_info info = sherd_world_info(world);
    sherd_memory memory = sherd_world_memory(world);
    sherd_world_close(world);
    print_machine(&memory);
    print_compute(&info);
    print_gpus(stdout);
    return fflush(stdout) == 0 ? 0 : CLI_FAILED;
}
