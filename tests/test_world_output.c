/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks of `sherd run` read and print: marked with the rank, in files, or as it comes;
 * standard input for rank 0 alone. A reader that is slow or gone never keeps the launcher from
 * watching.
 */
#define CHECK_PURE
#include "launched.h"

#include <poll.h>
#include <sys/stat.h>

#include "launch/output.h"

enum { LINES = 400, RANKS = 4, ROOM = 1 << 20 };

static const double patience = 10;
static char seen[ROOM];

/* ---- the ranks ------------------------------------------------------------------------------- */

/* Line i of a rank: its length goes up and down, and some are empty. */
static int line_text(char *out, int rank, int i)
{
    int length = sprintf(out, "%d.%d:", rank, i), more = i * 37 % 300;

    memset(out + length, 'a' + rank, (size_t)more);
    length += more;
    out[length] = '\0';
    return length;
}

/* In pieces that have nothing to do with lines; the last line has no end. */
static void print_lines(int fd, int rank)
{
    static char all[LINES * 400];
    size_t length = 0, at = 0, piece = 0;

    for (int i = 0; i < LINES; i++) {
        length += (size_t)line_text(all + length, rank, i);
        if (i + 1 < LINES)
            all[length++] = '\n';
    }
    for (; at < length; at += piece) {
        piece = (at * 7 + 13 * (size_t)rank) % 997 + 1;
        piece = piece < length - at ? piece : length - at;
        if (write(fd, all + at, piece) != (ssize_t)piece)
            _exit(31);
    }
}

static void echo_input(void)
{
    char text[64];
    ssize_t n = read(0, text, sizeof text);

    printf("%s reads %d\n", getenv("SHERD_RANK"), (int)n);
}

/* More than all buffers on the way take. */
static void flood(void)
{
    static char line[1024];

    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (;;)
        if (write(1, line, sizeof line) < 0)
            _exit(32);
}

/* Rank 1 fills the pipe to its last byte with lines of 64, marks included, and leaves. */
static int leave_a_full_pipe(void)
{
    static const char line[60] = "01234567890123456789012345678901234567890123456789012345678";
    sherd_world *world = NULL;

    if (sherd_world_open(&world, NULL))
        return 33;
    const sherd_mesh *mesh = line_of_ranks(world);
    bool good = meet(world, mesh);
    for (int i = 0; good && i < 640 && sherd_world_rank(world) == 1; i++)
        good = write(2, line, 59) == 59 && write(2, "\n", 1) == 1;
    if (sherd_world_rank(world) == 1)
        _exit(good ? 3 : 34);
    (void)meet(world, mesh);
    return 3;
}

/* Most have no world: that would make no difference there. */
static int play_rank(const char *mode)
{
    int rank = atoi(getenv("SHERD_RANK"));

    if (strcmp(mode, "leaves") == 0)
        return leave_a_full_pipe();
    if (strcmp(mode, "lines") == 0) {
        print_lines(1, rank);
        print_lines(2, rank);
    } else if (strcmp(mode, "input") == 0) {
        echo_input();
    } else if (strcmp(mode, "floods") == 0) {
        fprintf(stderr, "rank %d is %d\n", rank, (int)getpid());
        flood();
    } else if (strcmp(mode, "long") == 0) {
        for (int i = 0; i < 200000; i++)
            putchar('y');
        puts("!");
    }
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void read_all(int fd)
{
    ssize_t n = pread(fd, seen, ROOM - 1, 0);
    seen[n < 0 ? 0 : n] = '\0';
}

static void read_path(const char *folder, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    read_all(fd);
    close(fd);
}

/* Whether a line is the next of one of the two outputs of a rank. */
static bool is_next(int next[2], int rank, const char *line)
{
    char wanted[400];

    for (int i = 0; i < 2; i++) {
        line_text(wanted, rank, next[i] % LINES);
        if (strcmp(line, wanted) == 0) {
            next[i]++;
            return true;
        }
    }
    return false;
}

/* Whole lines of `ranks`, `times` each, those of an output in order. */
static void check_marked(int ranks, int times)
{
    static int next[RANKS][2];
    char *rest = seen, *line;
    int good = 0, count = 0;

    memset(next, 0, sizeof next);
    while ((line = strsep(&rest, "\n")) && (*line || rest)) {
        int rank = line[0] == '[' ? atoi(line + 1) : -1;
        count++;
        if (rank < 0 || rank >= ranks || strncmp(line + 2, "] ", 2) != 0)
            continue;
        good += is_next(next[rank], rank, line + 4);
    }
    CHECK_EQ(count, ranks * LINES * times);
    CHECK_EQ(good, count);
}

static void lines_are_marked_and_whole(void)
{
    for (int together = 0; together < 2; together++) {
        program p = {.pid = -1};
        int out = program_file("out"), err = -1;
        char line[512];
        snprintf(line, sizeof line,
                 together ? "/bin/sh -c exec\t%s\trun\t-n\t%d\t--prefix\t%s\tlines\t2>&1"
                          : "%s run -n %d --prefix %s lines",
                 SHERD, RANKS, self);
        p = program_start_to(line, out);
        err = dup(p.err);
        out = dup(out);
        CHECK_EQ(program_wait(&p)->status, 0);
        read_all(out);
        check_marked(RANKS, together ? 2 : 1);
        if (!together) {
            read_all(err);
            check_marked(RANKS, 1);
        }
        close(out);
        close(err);
    }
}

static void a_line_without_end_goes_on_in_pieces(void)
{
    int out = program_file("out"), longest = 0, total = 0, length = 0;
    program p = launch("-n 1 --prefix", "long");

    close(out);
    out = dup(p.out);
    CHECK_EQ(program_wait(&p)->status, 0);
    read_all(out);
    for (const char *at = seen; *at; at++) {
        total += *at == 'y' || *at == '!';
        length = *at == '\n' ? 0 : length + 1;
        longest = length > longest ? length : longest;
    }
    CHECK_EQ(total, 200001);
    CHECK(longest <= (1 << 16) + 4);
    close(out);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void check_log(const char *folder, int rank, const char *end)
{
    static char wanted[LINES * 400];
    char name[64];
    size_t length = 0;

    for (int i = 0; i < LINES; i++) {
        length += (size_t)line_text(wanted + length, rank, i);
        if (i + 1 < LINES)
            wanted[length++] = '\n';
    }
    wanted[length] = '\0';
    snprintf(name, sizeof name, "rank-%d.%s", rank, end);
    read_path(folder, name);
    CHECK(strcmp(seen, wanted) == 0);
}

static void remove_logs(const char *folder)
{
    char path[128];

    for (int i = 0; i < 2 * RANKS; i++) {
        snprintf(path, sizeof path, "%s/rank-%d.%s", folder, i / 2, i % 2 ? "err" : "out");
        CHECK_EQ(unlink(path), 0);
    }
    CHECK_EQ(rmdir(folder), 0);
}

static void each_rank_has_files_of_its_own(void)
{
    for (int prefix = 0; prefix < 2; prefix++) {
        char folder[] = "/tmp/sherd-logs-XXXXXX", options[128];
        if (!CHECK(mkdtemp(folder) != NULL) || !CHECK_EQ(rmdir(folder), 0))
            return;
        snprintf(options, sizeof options, "-n %d --logs %s%s", RANKS, folder,
                 prefix ? " --prefix" : "");
        program p = launch(options, "lines");
        int out = dup(p.out);
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 0);
        read_all(out);
        if (prefix)
            check_marked(RANKS, 1);
        else
            CHECK(seen[0] == '\0' && end->err[0] == '\0');
        close(out);
        for (int r = 0; r < RANKS; r++) {
            check_log(folder, r, "out");
            check_log(folder, r, "err");
        }
        remove_logs(folder);
    }
}

static void files_that_can_not_be_are_refused(void)
{
    static const char *const folders[] = {"/proc/nothing", "/dev/null", "/nowhere/at/all"};

    for (int i = 0; i < LEN(folders); i++) {
        char options[128];
        snprintf(options, sizeof options, "-n 2 --logs %s", folders[i]);
        program p = launch(options, "lines");
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 1);
        CHECK_EQ(program_lines(end->err), 1);
        CHECK(strstr(end->err, folders[i]) != NULL);
    }
}

/* Cut off, it would be one name for all ranks' files. */
static void a_path_that_is_too_long_is_refused(void)
{
    enum { LONG = 4088 };
    static char folder[LONG + 1], line[LONG + 512];

    snprintf(folder, sizeof folder, "/tmp/sherd-long-XXXXXX");
    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    size_t length = strlen(folder);
    for (size_t at = length; at + 2 <= LONG; at += 2)
        memcpy(folder + at, "/.", 3);
    snprintf(line, sizeof line, "%s run -n 2 --logs %s %s lines", SHERD, folder, self);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "File name too long") != NULL);
    folder[length] = '\0';
    CHECK_EQ(rmdir(folder), 0);
}

/* Pipes of many ranks are more files than a shell may allow; the ranks have what it allows. */
static void many_ranks_need_no_higher_limit(void)
{
    static program_end end;
    char line[512];

    snprintf(
        line, sizeof line,
        "/bin/sh -c ulimit\t-S\t-n\t100;exec\t%s\trun\t-n\t70\t--prefix\t/bin/sh\t-c\t'ulimit\t-n'",
        SHERD);
    end = *program_run(line);
    CHECK_EQ(end.status, 0);
    CHECK_EQ(program_lines(end.out), 70);
    CHECK(strstr(end.out, "[69] 100\n") != NULL && strstr(end.out, "[ 0] 100\n") != NULL);
}

/* ---- input ----------------------------------------------------------------------------------- */

static void rank_0_alone_has_the_input(void)
{
    char line[512], in[64];
    int file = program_file("in");

    CHECK_EQ(write(file, "twelve bytes", 12), 12);
    snprintf(in, sizeof in, "/proc/self/fd/%d", file);
    snprintf(line, sizeof line, "%s run -n 3 %s input", SHERD, self);
    program p = program_start_with(line, in, program_file("out"));
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "0 reads 12\n") != NULL);
    CHECK(strstr(end->out, "1 reads 0\n") && strstr(end->out, "2 reads 0\n"));
    close(file);
}

/* ---- readers --------------------------------------------------------------------------------- */

static pid_t flooding(const program *p, int rank)
{
    char said[32];
    int pid = 0;

    snprintf(said, sizeof said, "rank %d is ", rank);
    for (double end = program_clock() + patience; program_clock() < end && !pid;) {
        read_all(p->err);
        const char *at = strstr(seen, said);
        if (!at || sscanf(at + strlen(said), "%d", &pid) != 1)
            program_pause(0.01);
    }
    return pid;
}

/* Nobody reads: the ranks wait, the launcher does not. */
static void a_slow_reader_stops_nobody_from_watching(void)
{
    char line[512];
    int ends[2];

    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    snprintf(line, sizeof line, "%s run -n 2 --prefix --grace 0 %s floods", SHERD, self);
    program p = program_start_to(line, dup(ends[1]));
    CHECK(flooding(&p, 0) > 0 && flooding(&p, 1) > 0);
    program_pause(0.3); /* until everything on the way is full */
    send_signal(p.pid, SIGTERM);
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 128 + SIGTERM);
    CHECK(strstr(end->err, "sherd: ended by signal 15 (SIGTERM)\n") != NULL);
    CHECK_EQ(end->left, 0);
    close(ends[0]);
    close(ends[1]);
}

/* What the launcher says at the end waits for its reader as lines of ranks do. */
static void a_slow_reader_gets_the_flight_record(void)
{
    char line[512], *at = seen;
    ssize_t n;
    int ends[2];

    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    snprintf(line, sizeof line, "/bin/sh -c exec\t%s\trun\t-n\t2\t--prefix\t%s\tleaves\t2>&1",
             SHERD, self);
    program p = program_start_to(line, ends[1]);
    close(ends[1]);
    p.out = program_file("out");
    for (; (n = read(ends[0], at, 4096)) > 0 && at + 2 * 4096 < seen + ROOM; at += n)
        program_pause(0.002);
    *at = '\0';
    close(ends[0]);
    CHECK_EQ(program_wait(&p)->status, 3);
    CHECK(strstr(seen, "flight record: rank 1 exited with status 3") != NULL);
    CHECK(strstr(seen, "  rank 0: ") != NULL); /* it waits, or has gone already */
    CHECK(strstr(last_line(seen), "sherd: rank 1 exited with status 3") != NULL);
}

/* `| head`: the ranks get what they would get without a launcher between. */
static void a_reader_that_is_gone_ends_the_ranks(void)
{
    char line[512], text[256];
    int ends[2];

    for (int prefix = 0; prefix < 2; prefix++) {
        CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
        snprintf(line, sizeof line, "%s run -n 2%s %s floods", SHERD, prefix ? " --prefix" : "",
                 self);
        program p = program_start_to(line, ends[1]);
        close(ends[1]);
        p.out = program_file("out");
        CHECK(read(ends[0], text, sizeof text) > 0);
        close(ends[0]);
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 128 + SIGPIPE);
        CHECK(strstr(last_line(end->err), "was killed by signal 13 (SIGPIPE)") != NULL);
        CHECK_EQ(end->left, 0);
    }
}

/* A full disk is no reader that is gone: the ranks go on to their end. */
static void what_can_not_be_written_is_lost(void)
{
    char line[512];

    snprintf(line, sizeof line, "%s run -n 2 --prefix %s long", SHERD, self);
    program p = program_start_to(line, open("/dev/full", O_WRONLY | O_CLOEXEC));
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err, "sherd: output of the ranks is lost: No space left on device\n");
    snprintf(line, sizeof line, "%s run -n 2 --prefix /bin/sh -c echo\tx;exit\t7", SHERD);
    p = program_start_to(line, open("/dev/full", O_WRONLY | O_CLOEXEC));
    end = program_wait(&p);
    CHECK_EQ(end->status, 7);
    CHECK(strstr(end->err, "output of the ranks is lost: No space left on device\n") != NULL);
    CHECK(strstr(last_line(end->err), "exited with status 7") != NULL);
}

/* Nor is a standard output that is closed; where nothing is written nothing is lost. */
static void what_goes_to_a_closed_output_is_lost(void)
{
    char line[512];

    snprintf(line, sizeof line, "/bin/sh -c exec\t%s\trun\t-n\t2\t--prefix\t%s\tlong\t>&-", SHERD,
             self);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err, "sherd: output of the ranks is lost: Bad file descriptor\n");
    snprintf(line, sizeof line, "/bin/sh -c exec\t%s\trun\t-n\t2\t--prefix\ttrue\t>&-", SHERD);
    CHECK_EQ(program_run(line)->status, 0);
}

/* The reader goes while all that is on the way is full: nothing would wake the launcher for it. */
static void full_streams_end_with_their_reader(void)
{
    static const char lines[4096] = "many lines\n";
    struct pollfd fds[SHERD__OUTPUT_FDS];
    sherd__diag diag = {.rank = 0};
    sherd__output out;
    int ends[2];

    CHECK_OK(sherd__output_open(&out, 1, true, NULL, &diag));
    CHECK_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    sherd__stream *s = &out.stream[0];
    int own = s->to->fd;
    s->to->fd = ends[1];
    fcntl(s->out, F_SETFL, O_NONBLOCK);
    for (int idle = 0; idle < 3; idle++) { /* until nothing moves */
        while (write(s->out, lines, sizeof lines) > 0)
            idle = 0;
        int count = sherd__output_poll(&out, fds);
        poll(fds, (nfds_t)count, 0);
        sherd__output_move(&out, fds);
    }
    close(ends[0]);
    s->to->gone = true; /* as its last write has said */
    s->to->length = 0;
    int count = sherd__output_poll(&out, fds);
    poll(fds, (nfds_t)count, 0);
    CHECK(s->in < 0);
    s->to->fd = own;
    close(ends[1]);
    sherd__output_close(&out);
}

static const check_test tests[] = {
    {TEST(lines_are_marked_and_whole)},           {TEST(a_line_without_end_goes_on_in_pieces)},
    {TEST(each_rank_has_files_of_its_own)},       {TEST(files_that_can_not_be_are_refused)},
    {TEST(a_path_that_is_too_long_is_refused)},   {TEST(many_ranks_need_no_higher_limit)},
    {TEST(rank_0_alone_has_the_input)},           {TEST(a_slow_reader_stops_nobody_from_watching)},
    {TEST(a_slow_reader_gets_the_flight_record)}, {TEST(a_reader_that_is_gone_ends_the_ranks)},
    {TEST(what_can_not_be_written_is_lost)},      {TEST(what_goes_to_a_closed_output_is_lost)},
    {TEST(full_streams_end_with_their_reader)},
};
LAUNCHED_MAIN(tests, play_rank)
