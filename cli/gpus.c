/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this machine, as CUDA's driver has them. It is loaded, not linked, as by the library
 * (docs/decisions/106), and asked without starting any GPU: of NVRTC and cuBLAS, which computing
 * needs too, nothing is known here.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/library.h"
#include "device/cuda.h"
#include "gpus.h"

/* In the order of `names`. */
typedef struct driver {
    int (*init)(unsigned);
    int (*count)(int *);
    int (*get)(CUdevice *, int);
    int (*name)(char *, int, CUdevice);
    int (*bytes)(size_t *, CUdevice);
} driver;

static const char *const names[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                                    "cuDeviceTotalMem_v2"};
enum { NAMES = sizeof names / sizeof *names };
_Static_assert(sizeof(driver) == NAMES * sizeof(void (*)(void)), "a function for each name");

/* False: there is no driver, or an old one. */
static bool find(driver *out, void *library)
{
    union {
        driver all;
        void *function[NAMES];
    } found;

    for (int i = 0; i < NAMES; i++)
        if (!library || !(found.function[i] = dlsym(library, names[i])))
            return false;
    *out = found.all;
    return true;
}

static bool look_at(gpu *out, const driver *d, int number)
{
    CUdevice device;

    *out = (gpu){.number = number};
    return !d->get(&device, number) && !d->name(out->name, sizeof out->name, device) &&
           !d->bytes(&out->bytes, device);
}

int find_gpus(gpu out[GPUS])
{
    const char *given = getenv("SHERD_CUDA_LIBRARY");
    driver d;
    int count = 0, found = 0;

    if (!find(&d, sherd__library_open(given && *given ? given : "libcuda.so.1")) || d.init(0) ||
        d.count(&count))
        return 0;
    for (int i = 0; i < count && found < GPUS; i++)
        found += look_at(&out[found], &d, i);
    return found;
}

void print_gpus(FILE *to)
{
    gpu all[GPUS];
    int count = find_gpus(all);

    for (int i = 0; i < count; i++)
        fprintf(to, "GPU         cuda:%d, %s, %.1f GiB\n", all[i].number, all[i].name,
                (double)all[i].bytes / (1 << 30));
}
