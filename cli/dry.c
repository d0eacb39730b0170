/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: starts a program as one rank of many, with the environment that lets its worlds be dry
 * (sherd/dry.h), and shows what they have reported; or as several, one after the other, so that a
 * stage of a pipeline learns what the one before has sent. Reports go through files without names,
 * what is sent through a folder that is gone afterwards.
 */
#include "dry.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "world/dry_rates.h"
#include "world/world.h"

enum { MOST = 256 };

static const char usage[] = "sherd dry [-n N] [OPTIONS] [--] PROGRAM [ARGUMENTS]";

/* ---- what is asked for ----------------------------------------------------------------------- */

/* The ranks "0,4" into which[MOST], how many there are, and of how many: 0 = nobody says. */
typedef struct asked {
    long which[MOST];
    int count;
    long of;
} asked;

static bool read_ranks(asked *out, const cli_values *values)
{
    const char *list = values->of[CLI_DRY_RANK], *ranks = values->of[CLI_RUN_RANKS];
    char word[32];

    *out = (asked){.of = ranks ? cli_whole_number(ranks, 1, INT32_MAX) : 0};
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
        if (out->count == MOST)
            return cli_refuse("dry", "--rank: at most %d ranks can be run", MOST) == 0;
        out->which[out->count++] = rank;
        at += length;
        if (!*at)
            return true;
    }
}

/* The rank, of how many if that was said, and where its report goes. */
static bool set_rank(const asked *ranks, int i, int report)
{
    char text[64], path[64];

    snprintf(text, sizeof text, ranks->of ? "%ld/%ld" : "%ld", ranks->which[i], ranks->of);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), report);
    return setenv("SHERD_DRY", text, 1) == 0 && setenv("SHERD_DRY_REPORT", path, 1) == 0;
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

static bool is_program(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
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
    return cli_ask_trace(values->of[CLI_RUN_TRACE]);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Its status, as of waitpid; -1 and errno if it can not be started. With `json` standard output is
 * for that alone. */
static int run(char **argv, bool json)
{
    int status = 0, error = 0, line[2];

    if (pipe2(line, O_CLOEXEC))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (!json || dup2(2, 1) == 1)
            execvp(argv[0], argv);
        error = errno;
        ssize_t told = write(line[1], &error, sizeof error);
        (void)told; /* then it has an exit status */
        _exit(127);
    }
    error = child < 0 ? errno : 0;
    close(line[1]);
    if (child > 0 && read(line[0], &status, sizeof status) == sizeof status)
        error = status;
    close(line[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return error ? -1 : status;
}

/* Its exit status, 128 + signal if it was killed; another one than 0 is told. */
static int tell_end(long rank, int status)
{
    if (WIFSIGNALED(status)) {
        cli_refuse("dry", "rank %ld was killed by signal %d (%s)", rank, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
        return 128 + WTERMSIG(status);
    }
    if (WEXITSTATUS(status))
        cli_refuse("dry", "rank %ld exited with status %d", rank, WEXITSTATUS(status));
    return WEXITSTATUS(status);
}

/* All that was reported, ended by a zero; NULL: no memory. The caller frees it. */
static char *read_report(int report)
{
    off_t bytes = lseek(report, 0, SEEK_END);
    char *text = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    ssize_t have = 0, n = 1;

    while (text && have < bytes && n > 0) {
        n = pread(report, text + have, (size_t)(bytes - have), have);
        have += n > 0 ? n : 0;
    }
    if (text)
        text[have] = '\0';
    return text;
}

/* One report for each world that the program has closed. False: there is none, or it is broken. */
static bool show(int report, bool json)
{
    char *text = read_report(report), *rest = text;
    bool good = text && *text;

    for (char *line; good && (line = strtok_r(rest, "\n", &rest));) {
        if (json)
            puts(line);
        else
            good = cli_dry_print(stdout, line);
    }
    free(text);
    return good && fflush(stdout) == 0;
}

/* One rank from its start to its report; its exit status. */
static int run_rank(const asked *ranks, int i, char **argv, bool json)
{
    int report = memfd_create("sherd dry", MFD_CLOEXEC);

    if (report < 0) {
        cli_refuse("dry", "no file for the report: %s", strerror(errno));
        return CLI_FAILED;
    }
    int status = set_rank(ranks, i, report) ? run(argv, json) : -1;
    int exit_status = CLI_FAILED;
    bool shown = status >= 0 && show(report, json);
    if (status < 0)
        cli_refuse("dry", "\"%.200s\" can not be started: %s", argv[0], strerror(errno));
    else if (status != 0 || shown)
        exit_status = tell_end(ranks->which[i], status);
    else
        cli_refuse("dry", "\"%.200s\" has opened no world of sherd, or not closed it", argv[0]);
    close(report);
    return exit_status;
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

int cli_dry(int argc, char **argv)
{
    cli_values values;
    asked ranks;
    char folder[448];
    int at = 0, exit_status = 0;

    if (!cli_values_before_program(&values, CLI_OF_DRY, "dry", argc, argv, &at) ||
        !read_ranks(&ranks, &values))
        return CLI_UNUSABLE;
    if (at >= argc)
        return cli_refuse("dry", "which program? %s", usage);
    if (!are_rates(values.of[CLI_DRY_RATES]) || !is_price(values.of[CLI_DRY_PRICE]))
        return CLI_UNUSABLE;
    if (!is_there(argv[at])) {
        cli_refuse("dry", "\"%.200s\" can not be started: %s", argv[at], strerror(errno));
        return CLI_FAILED;
    }
    if (!set_environment(&values))
        return CLI_UNUSABLE;
    if (!make_folder(folder, sizeof folder))
        return CLI_FAILED;
    for (int i = 0; i < ranks.count && exit_status == 0; i++)
        exit_status = run_rank(&ranks, i, argv + at, values.of[CLI_JSON] != NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return exit_status;
}
