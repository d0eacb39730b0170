/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module for the MPI that has started this process. The library is linked to no MPI: the module
 * of that MPI is loaded when it is known which one it is, so that one program runs under any of
 * them.
 */
#include "carried.h"

#include "base/library.h"
#include "base/variable.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Something of this file, by which the library finds itself. */
static const char here[] = "sherd";

/* The file that this code is mapped from, wherever the working folder is now. */
static bool mapped_file(char *out, size_t room)
{
    char *line = NULL;
    size_t line_room = 0;
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");

    while (maps && !found && getline(&line, &line_room, maps) > 0) {
        unsigned long from, to;
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        found = path && sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)here >= from &&
                (uintptr_t)here < to && snprintf(out, room, "%s", path) < (int)room;
    }
    free(line);
    if (maps)
        fclose(maps);
    return found;
}

/* Folders to begin from: of the library, or of the program if that has it in itself, as it was
 * named and as it is; and of the program. "" if there is none. */
enum { FOLDERS = 3, FOLDER_BYTES = 1024 };
typedef char folder_list[FOLDERS][FOLDER_BYTES];

static void find_folders(folder_list folder)
{
    Dl_info info;

    memset(folder, 0, sizeof(folder_list));
    if (dladdr((const void *)here, &info) && info.dli_fname && info.dli_fname[0] == '/')
        snprintf(folder[0], FOLDER_BYTES, "%s", info.dli_fname);
    (void)mapped_file(folder[1], FOLDER_BYTES);
    (void)readlink("/proc/self/exe", folder[2], FOLDER_BYTES - 1);
    for (int i = 0; i < FOLDERS; i++) {
        char *slash = strrchr(folder[i], '/');
        if (slash)
            *slash = '\0';
    }
}

/* In the folder itself and around it, as things lie where they are built and where they are
 * installed. */
static void *load_beside(const char *folder, const char *module)
{
    static const char *const places[] = {
        ".", "..", "sherd", "../lib/sherd", "../lib64/sherd", "../lib/" SHERD_MULTIARCH "/sherd"};
    char path[FOLDER_BYTES + 128];
    void *handle = NULL;

    for (size_t i = 0; *folder && i < sizeof places / sizeof places[0] && !handle; i++) {
        int length =
            snprintf(path, sizeof path, "%s/%s/sherd_mpi_%s.so", folder, places[i], module);
        if (length < (int)sizeof path && access(path, R_OK) == 0)
            handle = sherd__library_open(path);
    }
    return handle;
}

static void *load_module(folder_list folder, const char *module)
{
    char path[FOLDER_BYTES];
    void *handle = NULL;

    for (int i = 0; i < FOLDERS && !handle; i++)
        handle = load_beside(folder[i], module);
    snprintf(path, sizeof path, "%s/sherd_mpi_%s.so", SHERD_MODULES, module);
    return handle ? handle : sherd__library_open(path);
}

/* A program that is linked to an MPI can have no other. */
static const char *linked_module(void)
{
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"))
        return "openmpi";
    return dlsym(RTLD_DEFAULT, "MPICH_Version") || dlsym(RTLD_DEFAULT, "MPIR_Err_create_code")
               ? "mpich"
               : NULL;
}

static void *load(const sherd__mpi_mark *mark, char *text, size_t room)
{
    const char *given = sherd__variable("SHERD_MPI_MODULE"), *linked = linked_module();
    const char *module[] = {linked ? linked : mark->module[0], linked ? NULL : mark->module[1]};
    folder_list folder;
    void *handle = NULL;

    (void)dlerror();
    if (given)
        handle = sherd__library_open(given);
    else
        find_folders(folder);
    for (int i = 0; !given && i < 2 && module[i] && !handle; i++)
        handle = load_module(folder, module[i]);
    if (!handle)
        snprintf(text, room, "%s", sherd__library_fault());
    return handle;
}

sherd_status sherd__carrier_find(sherd_carrier *out, sherd__diag *diag)
{
    const sherd__mpi_mark *mark = sherd__mark_find();
    char text[SHERD_ERROR_BYTES] = "";
    sherd_status (*open)(sherd_carrier * out, char *text, size_t room);

    if (sherd__is_static())
        return sherd__fail(diag, SHERD_ENOTSUP,
                           "%s says that this is rank %s of a job of MPI, but a static executable "
                           "can load no module for it: link it to libsherd.so",
                           mark->rank, getenv(mark->rank));
    void *handle = load(mark, text, sizeof text);
    void *door = handle ? dlsym(handle, "sherd_carrier_open") : NULL;
    if (handle && !door)
        snprintf(text, sizeof text, "it is not a module of sherd");
    if (!door)
        return sherd__fail(
            diag, SHERD_EINVAL,
            "%s says that this is rank %s of a job of MPI, but sherd's module for it "
            "can not be loaded (build sherd where this MPI is, or set SHERD_MPI_MODULE to the "
            "path of sherd_mpi_openmpi.so or sherd_mpi_mpich.so, which lie in lib/sherd of "
            "where sherd is installed): %.200s",
            mark->rank, getenv(mark->rank), text);
    memcpy(&open, &door, sizeof open);
    sherd_status status = open(out, text, sizeof text);
    if (status)
        return sherd__fail(diag, status, "sherd_world_open: %.400s", text);
    if (!sherd__mark_ranks(mark) || out->ranks == sherd__mark_ranks(mark))
        return SHERD_OK;
    sherd__fail(diag, SHERD_EINVAL,
                "%s is %d, but %s knows of %d ranks: the program was started by the mpirun of "
                "another MPI",
                mark->ranks, sherd__mark_ranks(mark), out->name, out->ranks);
    out->close(out->self, true);
    return diag->status;
}
