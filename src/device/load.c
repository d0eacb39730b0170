/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's libraries: the driver, which comes with the GPU's own software, NVRTC and cuBLAS, which
 * come with CUDA. Those of the driver's version are looked for first, since newer ones may not work
 * with it. Costs some tenths of a second, once for a rank. cuDNN, which comes by itself, and cuFFT
 * are opened by the first call that wants them, which does without if they are not there.
 * SHERD_CUDA_LIBRARY names one library that has all their functions, for tests.
 */
#include "inside.h"

#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRIVER, NVRTC, CUBLAS, CUDNN = SHERD__CUDNN, CUFFT = SHERD__CUFFT };
enum { NEEDED = CUBLAS + 1 };

static const char *const library_name[] = {"libcuda.so.1", "libnvrtc", "libcublas", "libcudnn",
                                           "libcufft"};
static const char *const library_source[] = {
    "install NVIDIA's driver",
    "install CUDA's run-time compiler, NVRTC, and name its folder in LD_LIBRARY_PATH",
    "install cuBLAS, and name its folder in LD_LIBRARY_PATH",
};

/* Where the system keeps libraries, or else where CUDA puts itself. */
static void *open_somewhere(const char *name)
{
    char path[256];
    void *library = sherd__library_open(name);

    if (library)
        return library;
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", name);
    return sherd__library_open(path);
}

/* The version of a library that may work with CUDA's `version`. cuFFT's goes one behind. */
static int newest_of(int which, int version)
{
    return which == CUDNN ? 9 : which == CUFFT ? version - 1 : version;
}

/* libnvrtc.so.13, .12, .11.2, .so: from the driver's version down. */
static void *open_version(int which, int version)
{
    int newest = newest_of(which, version), oldest = which == CUDNN ? 8 : newest_of(which, 11);
    char name[64];
    void *library = NULL;

    for (int v = newest; v >= oldest && !library; v--) {
        const char *minor = which == NVRTC && v == 11 ? ".2" : "";
        snprintf(name, sizeof name, "%s.so.%d%s", library_name[which], v, minor);
        library = open_somewhere(name);
    }
    snprintf(name, sizeof name, "%s.so", library_name[which]);
    return library ? library : open_somewhere(name);
}

static void *open_one(sherd__device *device, int which)
{
    const char *given = getenv("SHERD_CUDA_LIBRARY");
    int version = 0;

    if (given && *given)
        return sherd__library_open(given);
    if (which == DRIVER)
        return sherd__library_open(library_name[DRIVER]);
    return device->cuda.driver_version(&version) == 0 ? open_version(which, version / 1000) : NULL;
}

/* The functions of one library; the name of the first that is missing, or NULL. */
static const char *find_all(sherd__cuda *cuda, void *library, int which)
{
    const char *missing = NULL;

#define CALL(from, name, symbol, ...)                                                 \
    if (which == from && !missing &&                                                  \
        !sherd__library_find(library, #symbol, (void (**)(void))(void *)&cuda->name)) \
        missing = #symbol;
#include "cuda_calls.inc"
#undef CALL
    return missing;
}

sherd_status sherd__cuda_load(sherd__device *device, sherd__diag *diag)
{
    for (int which = 0; which < NEEDED; which++) {
        void *library = open_one(device, which);
        if (!library)
            return sherd__fail(diag, SHERD_ENOTSUP, "no GPU can be used without %s: %s (%s)",
                               library_name[which], library_source[which], sherd__library_fault());
        device->library[which] = library;
        const char *missing = find_all(&device->cuda, library, which);
        if (missing)
            return sherd__fail(diag, SHERD_ENOTSUP, "%s is too old: it has no %s; CUDA 11.2 has",
                               library_name[which], missing);
    }
    return SHERD_OK;
}

bool sherd__cuda_load_more(sherd__device *device, int which)
{
    if (device->library[which] || device->not_there[which])
        return !device->not_there[which];
    device->library[which] = open_one(device, which);
    device->not_there[which] =
        !device->library[which] || find_all(&device->cuda, device->library[which], which);
    return !device->not_there[which];
}

void sherd__cuda_unload(sherd__device *device)
{
    for (int which = SHERD__CUDA_LIBRARIES - 1; which >= 0; which--)
        if (device->library[which])
            dlclose(device->library[which]);
}
