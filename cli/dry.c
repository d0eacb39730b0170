/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: starts a program once, as one rank of many, with the environment that lets its worlds
 * be dry (sherd/dry.h), and shows what they have reported. The report goes through a file without a
 * name.
 */
#include "dry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"

static const char usage[] = "sherd dry [-n N] [OPTIONS] [--] PROGRAM [ARGUMENTS]";

/* ---- what is asked for ----------------------------------------------------------------------- */

/* Options up to the program, which begins at *at. False: refused, and said so. */
static bool read_options(cli_values *out, int argc, char **argv, int *at)
{
    memset(out, 0, sizeof *out);
    for (*at = 1; *at < argc && argv[*at][0] == '-'; ++*at) {
        if (strcmp(argv[*at], "--") == 0) {
            ++*at;
            break;
        }
        if (!cli_value_read(out, CLI_OF_DRY, "dry", argv, at))
            return false;
    }
    return true;
}

/* A whole number from `low` to 2^31-1; -1 if the text is none. */
static long read_number(const char *text, long low)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);

    return end != text && !*end && n >= low && n <= INT32_MAX ? n : -1;
}

/* SHERD_DRY: the rank, and of how many if that was said. */
static bool set_rank(const cli_values *values)
{
    const char *rank = values->of[CLI_DRY_RANK], *ranks = values->of[CLI_RUN_RANKS];
    char text[32];

    if (rank && read_number(rank, 0) < 0)
        return cli_refuse("dry", "--rank: \"%.100s\" is no rank", rank) == 0;
    if (ranks && read_number(ranks, 1) < 0)
        return cli_refuse("dry", "-n: \"%.100s\" is no number of ranks", ranks) == 0;
    long r = rank ? read_number(rank, 0) : 0, n = ranks ? read_number(ranks, 1) : 0;
    if (ranks && r >= n)
        return cli_refuse("dry", "--rank: there is no rank %ld of %ld", r, n) == 0;
    snprintf(text, sizeof text, ranks ? "%ld/%ld" : "%ld", r, n);
    return setenv("SHERD_DRY", text, 1) == 0;
}

static bool set_environment(const cli_values *values, int report)
{
    const char *rates = values->of[CLI_DRY_RATES], *price = values->of[CLI_PRICE];
    const char *trace = values->of[CLI_RUN_TRACE];
    char text[160], path[64];

    if (!set_rank(values))
        return false;
    if (!rates && !cli_dry_rates(text, sizeof text))
        return cli_refuse("dry", "no memory to measure this machine: use --rates") == 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), report);
    if (setenv("SHERD_DRY_RATES", rates ? rates : text, 1) || setenv("SHERD_DRY_REPORT", path, 1))
        return false;
    if (price && strcmp(price, "arena") == 0)
        unsetenv("SHERD_PRICE");
    else if (price && setenv("SHERD_PRICE", price, 1))
        return false;
    return !trace || (!setenv("SHERD_TRACE", trace, 1) && !unsetenv("SHERD_TRACE_BEGUN"));
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Its exit status, 128 + signal if it was killed; -1 and errno if it can not be started. With
 * `json` standard output is for that alone. */
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
    if (error)
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
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

int cli_dry(int argc, char **argv)
{
    cli_values values;
    int at = 0;

    if (!read_options(&values, argc, argv, &at))
        return CLI_UNUSABLE;
    if (at >= argc)
        return cli_refuse("dry", "which program? %s", usage);
    int report = memfd_create("sherd dry", MFD_CLOEXEC);
    if (report < 0) {
        cli_refuse("dry", "no file for the report: %s", strerror(errno));
        return CLI_FAILED;
    }
    if (!set_environment(&values, report))
        return CLI_UNUSABLE;
    int exit_status = run(argv + at, values.of[CLI_JSON] != NULL);
    if (exit_status < 0) {
        cli_refuse("dry", "\"%.200s\" can not be started: %s", argv[at], strerror(errno));
        return CLI_FAILED;
    }
    if (show(report, values.of[CLI_JSON]) || exit_status)
        return exit_status;
    cli_refuse("dry", "\"%.200s\" has opened no world of sherd, or not closed it", argv[at]);
    return CLI_FAILED;
}
