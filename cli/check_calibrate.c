/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check --calibrate FILE --mesh MESH: measures the price file of a mesh, on ranks that it
 * starts on this machine, or, under `sherd run` or mpirun, on those of the job. Rank 0 writes the
 * file and prints. Costs some seconds for each axis.
 */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate.h"
#include "table.h"
#include "world/world.h"

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct target {
    const char *path;
    FILE *to;   /* the file itself, or what becomes one at the end */
    char *text; /* of that, if it is a regular file: nothing half-done is ever seen */
    size_t bytes;
} target;

/* A file of a name of its own beside the one that it becomes; -1: it can not be. */
static int create_beside(const target *t, char *name, size_t room)
{
    mode_t mask = umask(0);

    umask(mask);
    snprintf(name, room, "%.4000s.XXXXXX", t->path);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        (void)fchmod(fd, 0666 & ~mask);
    return fd;
}

/* What can not be written at the end is known before anything is measured. */
static bool target_open(target *t, const char *path)
{
    struct stat there;
    bool regular = stat(path, &there) != 0 || S_ISREG(there.st_mode);
    char name[PATH_MAX];

    t->path = path;
    if (!regular) {
        t->to = fopen(path, "we");
        return t->to != NULL;
    }
    errno = ENOENT; /* of "", beside which there could be a file */
    int fd = *path ? create_beside(t, name, sizeof name) : -1;
    if (fd < 0)
        return false;
    close(fd);
    unlink(name);
    t->to = open_memstream(&t->text, &t->bytes);
    return t->to != NULL;
}

/* Its text in the place of the file. */
static bool replace(const target *t)
{
    char name[PATH_MAX];
    int fd = create_beside(t, name, sizeof name);
    FILE *to = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = to && fwrite(t->text, 1, t->bytes, to) == t->bytes;

    if (to)
        good = fclose(to) == 0 && good;
    else if (fd >= 0)
        close(fd);
    good = good && rename(name, t->path) == 0;
    int cause = errno;
    if (fd >= 0 && !good)
        unlink(name);
    errno = cause;
    return good;
}

/* `whole`: what is in it is all that there is to be; otherwise the file stays as it was. */
static bool target_close(target *t, bool whole)
{
    bool good = !ferror(t->to);

    good = fclose(t->to) == 0 && good;
    good = good && (!whole || !t->text || replace(t));
    free(t->text);
    return good;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct order {
    const char *path, *mesh;
} order;

static void fail_file(sherd_world *world, const char *path)
{
    char text[SHERD_ERROR_BYTES];

    snprintf(text, sizeof text, "--calibrate: \"%.300s\": %s", path, strerror(errno));
    sherd_world_fail(world, SHERD_EINVAL, text);
}

/* "host     24.1 us a message, 61.2 MB/s, adds 1300 MB/s": a message of the smallest tensors, whose
 * line has little else in it, and the bytes of the largest. */
static void say(const sherd_link *small, const sherd_link *large)
{
    char alpha[32];
    double beta = (double)large->beta_femtoseconds, gamma = (double)large->gamma_femtoseconds;

    printf("%-8s %s a message, %.4g MB/s", large->axis,
           cli_seconds_text(alpha, sizeof alpha, 1e-12 * (double)small->alpha_picoseconds),
           beta > 0 ? 1e9 / beta : 0.0);
    if (gamma > 0)
        printf(", adds %.4g MB/s", 1e9 / gamma);
    puts("");
    fflush(stdout);
}

static bool calibrate(target *t, sherd_world *world, const sherd_mesh *mesh)
{
    cli_times times;

    if (t->to)
        fprintf(t->to,
                "# sherd check --calibrate, mesh %s, ranks by %s: axis, seconds a message, a byte, "
                "a byte added, upto bytes of a tensor\nstraight\n",
                sherd_mesh_text(mesh), sherd_world_transport(world));
    for (int axis = 0; axis < sherd_mesh_axes(mesh); axis++) {
        sherd_link lines[CLI_SIZES];
        char text[160];
        if (sherd_mesh_extent(mesh, axis) == 1)
            continue;
        if (!cli_times_measure(&times, world, mesh, axis))
            return false;
        int count = cli_times_fit(lines, SHERD_MAX_LINKS / sherd_mesh_axes(mesh), &times);
        for (int i = 0; i < count && t->to; i++) {
            snprintf(lines[i].axis, sizeof lines[i].axis, "%s", sherd_mesh_axis_name(mesh, axis));
            cli_line_write(text, sizeof text, &lines[i]);
            fputs(text, t->to);
        }
        if (t->to)
            say(&lines[0], &lines[count - 1]);
    }
    return true;
}

static const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    char why[SHERD_ERROR_BYTES];
    const sherd_mesh *mesh;

    if (sherd_mesh_parse(&mesh, world, text))
        return NULL;
    if (sherd_mesh_ranks(mesh) == sherd_world_ranks(world) && sherd_mesh_ranks(mesh) > 1)
        return mesh;
    snprintf(
        why, sizeof why,
        "--mesh: the mesh (%.100s) has %lld ranks, but the job %d: links are measured with all "
        "of them, two at least",
        sherd_mesh_text(mesh), (long long)sherd_mesh_ranks(mesh), sherd_world_ranks(world));
    sherd_world_fail(world, SHERD_EINVAL, why);
    return NULL;
}

static int run_rank(sherd_world *world, void *payload)
{
    const order *given = payload;
    target t = {.to = NULL};
    const sherd_mesh *mesh = mesh_of(world, given->mesh);

    if (mesh && sherd_world_rank(world) == 0 && !target_open(&t, given->path))
        fail_file(world, given->path);
    bool good = mesh && sherd_world_check(world) == SHERD_OK && calibrate(&t, world, mesh);
    if (t.to && !target_close(&t, good) && good)
        fail_file(world, given->path);
    good = sherd_world_check(world) == SHERD_OK && good;
    if (!good && sherd_world_rank(world) == 0)
        cli_refuse("check", "%s", sherd_world_error(world));
    return good ? 0 : CLI_FAILED;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* How many ranks the mesh names; 0: it was said why it can not be read. */
static int ranks_of(const cli_values *values)
{
    sherd_world *paper;
    const sherd_mesh *mesh;
    int ranks = 0;

    if (!cli_paper_open(&paper, values)) {
        cli_refuse("check", "out of memory");
        return 0;
    }
    if (sherd_mesh_parse(&mesh, paper, values->of[CLI_MESH]))
        cli_refuse("check", "--mesh: %s", cli_error_text(sherd__world_diag(paper)));
    else if (cli_ranks_for(mesh) > SHERD_MAX_RANKS)
        cli_refuse("check",
                   "--mesh: the mesh (%.100s) needs %lld ranks: at most %d can be started here",
                   values->of[CLI_MESH], (long long)cli_ranks_for(mesh), SHERD_MAX_RANKS);
    else
        ranks = (int)cli_ranks_for(mesh);
    sherd_status closed = sherd_world_close(paper);
    (void)closed; /* its failure was reported already */
    return ranks;
}

static bool has_others(const cli_values *values)
{
    for (int i = 0; i < CLI_KEYS; i++)
        if (values->of[i] && i != CLI_CALIBRATE && i != CLI_MESH && i != CLI_RANKS_AS) {
            cli_refuse("check", "--calibrate takes --mesh and --ranks-as: expected no --%s with it",
                       cli_key_name((cli_key)i));
            return true;
        }
    return false;
}

int cli_check_calibrate(const cli_values *values)
{
    const char *as = values->of[CLI_RANKS_AS];
    order given = {values->of[CLI_CALIBRATE], values->of[CLI_MESH]};
    char error[SHERD_ERROR_BYTES] = "";
    int exit_status = 0;

    if (has_others(values))
        return CLI_UNUSABLE;
    if (!given.mesh)
        return cli_refuse("check",
                          "--calibrate: expected --mesh with it, for example host=2,local=4");
    if (as && strcmp(as, "threads") != 0 && strcmp(as, "processes") != 0)
        return cli_refuse("check", "--ranks-as: expected processes or threads");
    sherd_world_options options = {.ranks = ranks_of(values), .error = error};
    if (options.ranks == 0)
        return CLI_UNUSABLE;
    options.as = as && strcmp(as, "threads") == 0 ? SHERD_THREADS : SHERD_PROCESSES;
    sherd_status status = sherd_spawn(&exit_status, &options, run_rank, &given);
    if (status != SHERD_OK && exit_status == 0)
        cli_refuse("check", "%s", error[0] ? error : sherd_status_text(status));
    return status != SHERD_OK || exit_status != 0 ? CLI_FAILED : 0;
}
