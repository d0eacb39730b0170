/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: starts a program as one rank of many, with the environment that lets its worlds be dry
 * (sherd/dry.h), and shows what they have reported; or as several, one after the other, so that a
 * stage of a pipeline learns what the one before has sent, through a folder that is gone
 * afterwards, also after a signal; or on many meshes (dry_meshes.c).
 */
#include "dry.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "world/dry_rates.h"
#include "world/trace.h"

static const char usage[] = "sherd dry [-n N] [OPTIONS] [--] PROGRAM [ARGUMENTS]";

/* ---- what is asked for ----------------------------------------------------------------------- */

/* The ranks "0,4", and of how many. */
static bool read_ranks(cli_dry_asked *out, const cli_values *values)
{
    const char *list = values->of[CLI_DRY_RANK], *ranks = values->of[CLI_RUN_RANKS];
    char word[32];

    *out = (cli_dry_asked){.of = ranks ? cli_whole_number(ranks, 1, INT32_MAX) : 0};
    if (out->of < 0)
        return cli_refuse("dry", "-n: \"%.100s\" is no number of ranks", ranks) == 0;
    for (const char *at = list ? list : "0";; at++) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : 0, at);
        long rank = cli_whole_number(word, 0, INT32_MAX);
        if (rank < 0)
            return cli_refuse("dry", "--rank: \"%.100s\" is no rank", word) == 0;
        if (ranks && rank >= out->of)
            return cli_refuse("dry", "--rank: there is no rank %ld of %ld", rank, out->of) == 0;
        if (out->count == CLI_DRY_MOST)
            return cli_refuse("dry", "--rank: at most %d ranks can be run", CLI_DRY_MOST) == 0;
        out->which[out->count++] = rank;
        at += length;
        if (!*at)
            return true;
    }
}

/* ---- before anything is run ------------------------------------------------------------------ */

static bool are_rates(const char *text)
{
    sherd__diag diag = {.rank = -1};
    sherd_rates rates;

    return !text || !sherd__rates_read(&rates, text, "--rates: ", &diag) ||
           cli_refuse("dry", "%s", diag.text) == 0;
}

/* Only a file is read here: what a pipe has is for the program. */
static bool is_price(const char *path)
{
    static const char expected[] = "arena, or a file of prices";
    sherd__diag diag = {.rank = -1};
    sherd__heap heap = {0};
    sherd_price price;
    struct stat about;

    if (!path || strcmp(path, "arena") == 0)
        return true;
    if (strcmp(path, "torch") == 0)
        return cli_refuse("dry", "--price: torch is a price of plans, not of calls: expected %s",
                          expected) == 0;
    return (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) ||
           !sherd__price_load(&price, &heap, &diag, path, expected) ||
           cli_refuse("dry", "--price: %s", diag.text) == 0;
}

/* If not, errno says why. */
static bool is_program(const char *path)
{
    struct stat about;

    if (stat(path, &about) || access(path, X_OK))
        return false;
    if (S_ISREG(about.st_mode))
        return true;
    errno = S_ISDIR(about.st_mode) ? EISDIR : EACCES;
    return false;
}

/* Whether execvp would find it. Measuring takes seconds, and would be for nothing. */
static bool is_there(const char *program)
{
    const char *folders = getenv("PATH");
    char path[PATH_MAX];

    if (strchr(program, '/') || !folders)
        return is_program(program);
    for (const char *at = folders;; at++) {
        size_t length = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s%s%s", (int)length, at, length ? "/" : "", program);
        at += length;
        if (is_program(path) || !*at)
            return is_program(path);
    }
}

/* One file for all ranks, who find that it was begun. */
static bool begin_trace(void)
{
    sherd__diag diag = {.rank = -1};

    return !sherd__trace_begin(&diag) || cli_refuse("dry", "%s", diag.text) == 0;
}

/* What is the same for all ranks; rates are measured once. */
static bool set_environment(const cli_values *values)
{
    const char *rates = values->of[CLI_DRY_RATES], *price = values->of[CLI_DRY_PRICE];
    char text[160];

    if (!rates && !cli_dry_rates(text, sizeof text))
        return cli_refuse("dry", "no memory to measure this machine: use --rates") == 0;
    if (setenv("SHERD_DRY_RATES", rates ? rates : text, 1))
        return false;
    if (price && strcmp(price, "arena") == 0)
        unsetenv("SHERD_PRICE");
    else if (price && setenv("SHERD_PRICE", price, 1))
        return false;
    return cli_ask_trace(values->of[CLI_RUN_TRACE]) && begin_trace();
}

/* ---- one rank after the other ---------------------------------------------------------------- */

/* Its exit status, 128 + signal if it was killed; another one than 0 is told. */
static int tell_end(long rank, const cli_dry_end *end)
{
    char text[2 * SHERD_ERROR_BYTES];
    int status = end->status;

    if (status) {
        cli_dry_end_text(text, sizeof text, rank, end);
        cli_refuse("dry", "%s", text);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* One report for each world that the program has closed. False: there is none, or it is broken. */
static bool show(char *report, bool json)
{
    char *rest = report;
    bool good = report && *report;

    for (char *line; good && (line = strtok_r(rest, "\n", &rest));) {
        if (json)
            puts(line);
        else
            good = cli_dry_print(stdout, line);
    }
    return good;
}

/*
 * The bytes that ranks have sent into a folder; *lacks: a rank needed something that was not sent
 * yet.
 */
static int64_t look_into(const char *folder, bool *lacks)
{
    DIR *list = opendir(folder);
    int64_t bytes = 0;

    *lacks = false;
    for (const struct dirent *e; list && (e = readdir(list));) {
        struct stat about;
        *lacks |= strcmp(e->d_name, "lacks") == 0;
        if (fstatat(dirfd(list), e->d_name, &about, 0) == 0 && S_ISREG(about.st_mode))
            bytes += about.st_size;
    }
    if (list)
        closedir(list);
    return bytes;
}

/*
 * Run one rank, and show its report; returns its exit status. `again`: if it lacks something that
 * was not sent yet, it will be run again, so nothing is shown.
 */
static int run_rank(const cli_dry_asked *ranks, int i, char **argv, bool json, bool again)
{
    cli_dry_end end;
    int exit_status = CLI_FAILED;

    cli_dry_program(&end, ranks, i, argv, json ? CLI_DRY_TO_ERRORS : CLI_DRY_AS_IT_IS);
    int error = errno;
    bool lacks = false;
    if (again)
        (void)look_into(getenv("SHERD_DRY_SENT"), &lacks);
    if (lacks) {
        free(end.report);
        return CLI_FAILED;
    }
    bool shown = end.status >= 0 && show(end.report, json), out = cli_flush("dry");
    free(end.report);
    if (ranks->signals->last)
        return exit_status;
    if (end.status < 0)
        cli_refuse("dry", "\"%.200s\" can not be started: %s", argv[0], strerror(error));
    else if (end.status != 0 || shown)
        exit_status = tell_end(ranks->which[i], &end);
    else
        cli_refuse("dry", "\"%.200s\" has opened no world of sherd, or not closed it", argv[0]);
    return exit_status == 0 && !out ? CLI_FAILED : exit_status;
}

/* A folder for what is sent, in path[room]. */
static bool make_folder(char *path, size_t room)
{
    const char *top = getenv("TMPDIR");

    snprintf(path, room, "%.400s/sherd-dry-XXXXXX", top && *top ? top : "/tmp");
    if (mkdtemp(path) && setenv("SHERD_DRY_SENT", path, 1) == 0)
        return true;
    cli_refuse("dry", "no folder for what is sent, %s: %s", path, strerror(errno));
    return false;
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where)
{
    (void)what;
    (void)kind;
    (void)where;
    return remove(path);
}

/* All ranks, one after the other, until one fails. */
static int run_each(const cli_dry_asked *ranks, char **argv, bool json, bool again)
{
    int exit_status = 0;

    for (int i = 0; i < ranks->count && exit_status == 0; i++)
        exit_status = run_rank(ranks, i, argv, json, again);
    return exit_status;
}

/* All of them, whatever becomes of one. */
static void run_quietly(const cli_dry_asked *ranks, char **argv)
{
    for (int i = 0; i < ranks->count && !ranks->signals->last; i++) {
        cli_dry_end end;
        cli_dry_program(&end, ranks, i, argv, CLI_DRY_NOWHERE);
        free(end.report);
    }
}

/*
 * Begin a round: ranks hear what was sent in the last one, and send into a new folder inside `top`.
 */
static bool turn_page(const char *top, int round)
{
    const char *sent = getenv("SHERD_DRY_SENT");
    char path[480];

    snprintf(path, sizeof path, "%s/%d", top, round);
    if (sent && setenv("SHERD_DRY_HEARD", sent, 1) == 0 && mkdir(path, 0700) == 0 &&
        setenv("SHERD_DRY_SENT", path, 1) == 0)
        return true;
    return cli_refuse("dry", "no folder for what is sent, %s: %s", path, strerror(errno)) == 0;
}

/*
 * If stages come round, a rank may need what is sent by ranks that run after it. Then all are run
 * again, quietly, until they lack nothing, or send no more than in the round before; and once more
 * for their reports.
 */
static int run_rounds(const cli_dry_asked *ranks, const char *folder, char **argv, bool json)
{
    int exit_status = run_each(ranks, argv, json, ranks->count > 1);
    bool lacks;
    int64_t sent = -1, now = look_into(folder, &lacks);

    if (!lacks || ranks->count < 2 || ranks->signals->last)
        return exit_status;
    fprintf(stderr, "sherd dry: all are run again, until it is known what those send that were not "
                    "run yet\n");
    for (int round = 1; lacks && now > sent && !ranks->signals->last; round++) {
        sent = now;
        if (!turn_page(folder, round))
            return CLI_FAILED;
        run_quietly(ranks, argv);
        now = look_into(getenv("SHERD_DRY_SENT"), &lacks);
    }
    if (ranks->signals->last)
        return CLI_FAILED;
    unsetenv("SHERD_TRACE_BEGUN"); /* of the last time alone */
    return turn_page(folder, 0) && begin_trace() ? run_each(ranks, argv, json, false) : CLI_FAILED;
}

/* Run all ranks with a folder for what they send; signals are held back until it is removed. */
static int run_all(cli_dry_asked *ranks, const cli_values *values, char **argv)
{
    const char *axes = values->of[CLI_DRY_AXES];
    bool json = values->of[CLI_JSON] != NULL;
    cli_dry_signals signals = {.last = 0};
    char folder[448];
    int exit_status = 0;

    ranks->signals = &signals;
    sherd__signals_take(&signals.taken, false);
    if (!make_folder(folder, sizeof folder)) {
        exit_status = CLI_FAILED;
    } else {
        if (axes)
            exit_status = cli_dry_meshes(ranks, axes, folder, argv, json);
        else
            exit_status = run_rounds(ranks, folder, argv, json);
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    sherd__signals_give_back(&signals.taken);
    if (signals.last)
        raise(signals.last);
    return exit_status;
}

int cli_dry(int argc, char **argv)
{
    cli_values values;
    cli_dry_asked ranks;
    int at = 0;

    if (!cli_values_before_program(&values, CLI_OF_DRY, "dry", argc, argv, &at) ||
        !read_ranks(&ranks, &values))
        return CLI_UNUSABLE;
    if (at >= argc)
        return cli_refuse("dry", "which program? %s", usage);
    if (values.of[CLI_DRY_AXES] && !cli_dry_axes_fit(values.of[CLI_DRY_AXES], ranks.of, argv + at))
        return CLI_UNUSABLE;
    if (values.of[CLI_DRY_AXES] && (values.of[CLI_RUN_TRACE] || sherd__trace_is_asked()))
        return cli_refuse("dry", "--axes takes no trace (--trace, SHERD_TRACE): run the mesh that "
                                 "it shall be of without --axes");
    if (!are_rates(values.of[CLI_DRY_RATES]) || !is_price(values.of[CLI_DRY_PRICE]))
        return CLI_UNUSABLE;
    if (!is_there(argv[at])) {
        cli_refuse("dry", "\"%.200s\" can not be started: %s", argv[at], strerror(errno));
        return CLI_FAILED;
    }
    if (!set_environment(&values))
        return CLI_UNUSABLE;
    return run_all(&ranks, &values, argv + at);
}
