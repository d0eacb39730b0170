/* SPDX-License-Identifier: Apache-2.0 */
/* sherd info: this machine, the kernels in use, and their speed, measured now on one core. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <sherd.h>

#include "cases.h"
#include "gpus.h"
#include "options.h"

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

static json_t *gpu_list(void)
{
    json_t *list = json_array();
    bool good = list != NULL;
    gpu all[GPUS];
    int count = find_gpus(all);

    for (int i = 0; i < count; i++)
        cli_append(&good, list,
                   json_pack("{s:i,s:o,s:I}", "number", all[i].number, "name",
                             cli_string(all[i].name), "memory_bytes", (json_int_t)all[i].bytes));
    return cli_whole(good, list);
}

/* The keys are in docs/running.md. False: no memory. */
static bool print_json(const sherd_info *info, const sherd_memory *memory)
{
    struct utsname system = {.sysname = ""};
    json_t *out = json_object();
    bool good = out != NULL;
    json_int_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    (void)uname(&system);
    cli_put(&good, out, "system", cli_string(system.sysname));
    cli_put(&good, out, "release", cli_string(system.release));
    cli_put(&good, out, "machine", cli_string(system.machine));
    cli_put(&good, out, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    cli_put(&good, out, "usable_cores", json_integer(usable_cores()));
    cli_put(&good, out, "memory_bytes", json_integer(pages * page));
    cli_put(&good, out, "tensor_bytes", json_integer(memory->limit_bytes));
    cli_put(&good, out, "max_ranks", json_integer(SHERD_MAX_RANKS));
    cli_put(&good, out, "kernels", json_string(info->kernels));
    cli_put(&good, out, "gemm", json_string(info->gemm));
    cli_put(&good, out, "peak", json_real(info->peak));
    cli_put(&good, out, "bf16_peak",
            info->bf16_peak > 0 ? json_real(info->bf16_peak) : json_null());
    cli_put(&good, out, "gemm_rate", json_real(info->gemm_rate));
    cli_put(&good, out, "gpus", gpu_list());
    char *text = good ? json_dumps(out, 0) : NULL;
    cli_print_text(text);
    free(text);
    json_decref(out);
    return text != NULL;
}

int cli_info(int argc, char **argv)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.no_pin = true, .error = error};
    cli_values values;
    sherd_world *world;
    bool good = true;

    if (!cli_values_read(&values, CLI_OF_INFO, "info", argc, argv))
        return CLI_UNUSABLE;
    if (sherd_world_alone(&world, &options) != SHERD_OK) {
        fprintf(stderr, "sherd info: %s\n", error);
        return CLI_FAILED;
    }
    sherd_info info = sherd_world_info(world);
    sherd_memory memory = sherd_world_memory(world);
    sherd_world_close(world);
    if (values.of[CLI_JSON]) {
        good = print_json(&info, &memory);
    } else {
        print_machine(&memory);
        print_compute(&info);
        print_gpus(stdout);
    }
    return cli_flush("info") && good ? 0 : CLI_FAILED;
}
