/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated compiler: what a text compiles to is the name of its kernel, which was compiled into
 * this library. A text without one is an error.
 */
#include "driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

struct _nvrtcProgram {
    std::string text, log, cubin, ptx;
};

enum { ERROR_OPTION = 5, ERROR_COMPILATION = 6 };

static std::atomic<int> programs, compiled, minor_version;
static const int architectures[] = {80, 86, 90};

int programs_left()
{
    return programs;
}

void (*find_kernel(const char *name))(const void *)
{
    static char here;
    Dl_info info;
    union {
        void *object;
        void (*call)(const void *);
    } found = {nullptr};

    if (!dladdr(&here, &info))
        return nullptr;
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return nullptr;
    found.object = dlsym(library, (std::string("emulated_") + name).c_str());
    dlclose(library);
    return found.call;
}

/* For tests: how many times something was compiled. */
EXPORT int emulated_cuda_compiled()
{
    return compiled;
}

/* For tests: the compiler is another version. */
EXPORT void emulated_cuda_compiler(int version)
{
    minor_version = version;
}

/* One that real ones do not have: what they made is kept apart. */
EXPORT int nvrtcVersion(int *major, int *minor)
{
    *major = 0;
    *minor = minor_version;
    return 0;
}

EXPORT int nvrtcGetNumSupportedArchs(int *out)
{
    *out = sizeof architectures / sizeof *architectures;
    return 0;
}

EXPORT int nvrtcGetSupportedArchs(int *out)
{
    memcpy(out, architectures, sizeof architectures);
    return 0;
}

EXPORT int nvrtcCreateProgram(nvrtcProgram *out, const char *text, const char *, int headers,
                              const char *const *header, const char *const *name)
{
    if (call_fails())
        return failure(NVRTC_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < headers; i++)
        if (!header[i] || !name[i])
            return ERROR_INVALID_VALUE;
    *out = new _nvrtcProgram{text, "", "", ""};
    programs++;
    return 0;
}

EXPORT int nvrtcDestroyProgram(nvrtcProgram *program)
{
    delete *program;
    *program = nullptr;
    programs--;
    return 0;
}

/* The architecture after this word in the options; 0: it is not said, or not known. */
static int architecture_of(int options, const char *const *option, const char *word)
{
    std::string start = std::string("--gpu-architecture=") + word + "_";

    for (int i = 0; i < options; i++)
        if (strncmp(option[i], start.c_str(), start.size()) == 0)
            for (int known : architectures)
                if (known == atoi(option[i] + start.size()))
                    return known;
    return 0;
}

EXPORT int nvrtcCompileProgram(nvrtcProgram program, int options, const char *const *option)
{
    const std::string &text = program->text;
    size_t at = text.rfind("\nKERNEL("), end = text.find(',', at);

    if (call_fails())
        return failure(NVRTC_ERROR_OUT_OF_MEMORY);
    int real = architecture_of(options, option, "sm");
    if (!real && !architecture_of(options, option, "compute")) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        return ERROR_OPTION;
    }
    std::string name = at == std::string::npos || end == std::string::npos
                           ? "nothing"
                           : text.substr(at + 8, end - at - 8);
    if (!find_kernel(name.c_str())) {
        program->log = "a.cu(1): warning: nothing to see\na.cu(2): error: there is no " + name +
                       "\n\n1 error detected in the compilation of \"a.cu\".\n";
        return ERROR_COMPILATION;
    }
    compiled++;
    program->cubin = real ? "cubin " + name : "";
    program->ptx = "ptx " + name;
    return 0;
}

static int give_bytes(const std::string &text, size_t *out)
{
    *out = text.empty() ? 0 : text.size() + 1;
    return call_fails() ? failure(NVRTC_ERROR_OUT_OF_MEMORY) : 0;
}

static int give_text(const std::string &text, char *out)
{
    if (call_fails())
        return failure(NVRTC_ERROR_OUT_OF_MEMORY);
    if (!text.empty())
        memcpy(out, text.c_str(), text.size() + 1);
    return 0;
}

EXPORT int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *out)
{
    return give_bytes(program->log, out);
}
EXPORT int nvrtcGetProgramLog(nvrtcProgram program, char *out)
{
    return give_text(program->log, out);
}
EXPORT int nvrtcGetCUBINSize(nvrtcProgram program, size_t *out)
{
    return give_bytes(program->cubin, out);
}
EXPORT int nvrtcGetCUBIN(nvrtcProgram program, char *out)
{
    return give_text(program->cubin, out);
}
EXPORT int nvrtcGetPTXSize(nvrtcProgram program, size_t *out)
{
    return give_bytes(program->ptx, out);
}
EXPORT int nvrtcGetPTX(nvrtcProgram program, char *out)
{
    return give_text(program->ptx, out);
}
