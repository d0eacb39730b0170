/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are loaded when they are wanted: library.h. */
#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

/* Called for the first object, the program: it is dynamic if it names an interpreter. */
static int look_at_program(struct dl_phdr_info *info, size_t bytes, void *has_loader)
{
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP)
            *(bool *)has_loader = true;
    return 1;
}

bool sherd__is_static(void)
{
    bool has_loader = false;

    (void)dl_iterate_phdr(look_at_program, &has_loader);
    return !has_loader;
}

void *sherd__library_open(const char *name)
{
    return sherd__is_static() ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

bool sherd__library_is_open(const char *name)
{
    void *library = sherd__is_static() ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    if (library)
        dlclose(library);
    return library != NULL;
}

bool sherd__library_find(void *library, const char *name, void (**out)(void))
{
    union {
        void *object;
        void (*call)(void);
    } found = {.object = dlsym(library, name)};

    *out = found.call;
    return found.object != NULL;
}

const char *sherd__library_fault(void)
{
    const char *why = sherd__is_static() ? "a static executable can load no library" : dlerror();

    return why ? why : "it was not found";
}
