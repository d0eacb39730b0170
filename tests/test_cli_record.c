/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight record: for each rank its last calls, what it waits for and since when, and who is
 * missing; on a screen, and as JSON; told where a job failed because ranks lost each other or
 * differed, and to whoever asks.
 */
#define CHECK_PURE
#include "cli.h"
#include "launched.h"
#include "launch/flight.h"

enum { LINES = 24, COLUMNS = 100 };

static const double patience = 45;

/* ---- the ranks ------------------------------------------------------------------------------- */

static void wait_for_ever(void)
{
    for (;;)
        sleep(30);
}

/* Rank 2 makes two calls, the others a third. */
static int lag(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool good = meet(world, mesh) && meet(world, mesh);

    say("rank", sherd_world_rank(world));
    if (sherd_world_rank(world) == 2)
        wait_for_ever();
    return good && meet(world, mesh) ? 0 : 4;
}

/* Rank 0 makes a call that the others do not; *good: whether the world works again. */
static int differ(sherd_world *world, bool mend)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    meet(world, mesh);
    if (sherd_world_rank(world) == 0)
        meet(world, mesh);
    if (sherd_world_check(world) != SHERD_EDIFFER)
        return 50;
    return mend && sherd_world_check(world) ? 51 : 0;
}

/* Groups of eight, of which one in each does not come. */
static int wait_in_groups(sherd_world *world)
{
    const sherd_mesh *own = NULL;
    int rank = sherd_world_rank(world), ranks = sherd_world_ranks(world);

    for (int first = 0; first < ranks; first += 8) {
        const sherd_mesh *mesh;
        char text[128];
        snprintf(text, sizeof text, "x=8@%d,%d,%d,%d,%d,%d,%d,%d", first, first + 1, first + 2,
                 first + 3, first + 4, first + 5, first + 6, first + 7);
        if (sherd_mesh_parse(&mesh, world, text))
            return 52;
        own = rank / 8 == first / 8 ? mesh : own;
    }
    say("rank", rank);
    if (rank % 8 == rank / 8)
        wait_for_ever();
    meet(world, own);
    return 0;
}

/* Rank 1 leaves with a status that a shell would take for a signal's. */
static int exit_high(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    meet(world, mesh);
    if (sherd_world_rank(world) == 1)
        _exit(200);
    meet(world, mesh);
    return 0;
}

static int body(sherd_world *world, void *payload)
{
    (void)payload;
    return lag(world);
}

static int play_rank(const char *mode)
{
    sherd_world *world;
    int value = 0;

    if (sherd_world_open(&world, NULL))
        return 21;
    if (strcmp(mode, "lags") == 0)
        value = lag(world);
    else if (strcmp(mode, "differs") == 0)
        value = differ(world, false) ? 50 : 1;
    else if (strcmp(mode, "differs, well") == 0)
        value = differ(world, false);
    else if (strcmp(mode, "mended") == 0)
        value = differ(world, true) ? 50 : 3;
    else if (strcmp(mode, "exits") == 0)
        value = exit_high(world);
    else if (strcmp(mode, "groups") == 0)
        value = wait_in_groups(world);
    return sherd_world_close(world) && !value ? 1 : value;
}

/* ---- what is printed ------------------------------------------------------------------------- */

/* The last line of all has its cause in full. */
static bool fits_a_screen(const char *text)
{
    int lines = 0;

    for (; *text; lines++) {
        size_t length = strcspn(text, "\n");
        if (length > COLUMNS && strncmp(text, "sherd: ", 7) != 0)
            return false;
        text += length + (text[length] == '\n');
    }
    return lines <= LINES;
}

/* The first of these that does not stand in a text behind those before it, or NULL. */
static const char *lacking(const char *text, const char *const *parts, int count)
{
    for (int i = 0; i < count; i++) {
        const char *at = strstr(text, parts[i]);
        if (!at)
            return parts[i];
        text = at + strlen(parts[i]);
    }
    return NULL;
}

/* That all of these stand in a text, one after the other. */
static bool in_order(const char *text, const char *const *parts, int count)
{
    const char *part = lacking(text, parts, count);

    if (part)
        fprintf(stderr, "\"%s\" is not there, or not in this place:\n", part);
    return !part;
}

/*
 * Ask for the record until one has all of these: when ranks that run beside others come to their
 * waits, only the record knows. They have said that they are there, or the signal would end who is
 * asked. Asks seldomer each time, so that what is printed has room.
 */
static void ask_until(program *p, const char *const *parts, int count)
{
    static char seen[PROGRAM_TEXT];
    double end = program_clock() + patience, pause = 0.1;
    size_t before = 0;

    for (; program_clock() < end; pause *= 1.5) {
        program_read(p->err, seen);
        before = strlen(seen);
        send_signal(p->pid, SIGUSR1);
        for (double next = program_clock() + pause; program_clock() < next; program_pause(0.005)) {
            program_read(p->err, seen);
            if (!lacking(seen + before, parts, count))
                return;
        }
    }
    if (!CHECK(in_order(seen + before, parts, count)))
        fprintf(stderr, "%s\n", seen + before);
}

/* Until the ranks 0 and 1 wait for rank 2; its process. */
static pid_t until_they_wait(program *p)
{
    static const char *const parts[] = {"flight record: asked for",
                                        "  missing: rank 2\n  rank 2: runs", "  ranks 0,1: waits ",
                                        " to make call 3 of ranks 0-2: share\n"};
    pid_t process = process_of(p, 2);

    ask_until(p, parts, LEN(parts));
    return process;
}

/* The last record that is told, and what stands behind it. */
static const char *last_record(const char *text)
{
    for (const char *at = text; (at = strstr(at, "flight record: ")); at++)
        text = at;
    return text;
}

static const program_end *end_of(program *p)
{
    const program_end *end = program_wait(p);

    CHECK_EQ(end->left, 0);
    if (!CHECK(fits_a_screen(last_record(end->err))))
        fprintf(stderr, "%s\n", end->err);
    return end;
}

static void a_death_is_told_with_who_waits(void)
{
    static const char *const parts[] = {
        "flight record: rank 2 was killed by signal 9 (SIGKILL)\n  missing: rank 2\n",
        "  rank 2: was killed by signal 9 (SIGKILL)\n      last: 2 share of ranks 0-2; 1 share\n",
        "  ranks 0,1: waits ",
        " s for rank 2 to make call 3 of ranks 0-2: share\n",
        "      last: 3 share (open) of ranks 0-2; 2 share; 1 share\n",
        "sherd: rank 2 was killed by signal 9 (SIGKILL)\n"};
    program p = launch("-n 3", "lags");

    send_signal(until_they_wait(&p), SIGKILL);
    const program_end *end = end_of(&p);
    CHECK_EQ(end->status, 137);
    if (!CHECK(in_order(end->err, parts, LEN(parts))))
        fprintf(stderr, "%s\n", end->err);
}

static void an_exit_status_is_no_signal(void)
{
    program p = launch("-n 2", "exits");
    const program_end *end = end_of(&p);

    CHECK_EQ(end->status, 200);
    CHECK(strstr(end->err, "  rank 1: has exited with status 200\n") != NULL);
}

static void a_timeout_is_told_with_who_waited(void)
{
    static const char *const parts[] = {
        "flight record: rank ",
        ": waited 1 s (SHERD_TIMEOUT) for rank 2 to make call 3",
        "  missing: rank 2\n  rank 2: ",
        ": wait", /* a rank that has not learned of it still waits */
        " s for rank 2 to make call 3 of ranks 0-2: share",
        "sherd: rank ",
        ": waited 1 s (SHERD_TIMEOUT) for rank 2"};

    setenv("SHERD_TIMEOUT", "1", 1);
    program p = launch("-n 3 --grace 1", "lags");
    const program_end *end = end_of(&p);
    unsetenv("SHERD_TIMEOUT");
    CHECK(end->status != 0);
    if (!CHECK(in_order(end->err, parts, LEN(parts))))
        fprintf(stderr, "%s\n", end->err);
}

/* Only where the job fails of it. */
static void a_difference_is_told_where_it_was_the_end(void)
{
    static const char *const parts[] = {"flight record: ",
                                        "share",
                                        "  rank 0: ",
                                        "last: 2 share",
                                        " of ranks 0-2; 1 share",
                                        "sherd: rank 0 exited with status 1: "};
    program p = launch("-n 3", "differs");
    const program_end *end = end_of(&p);

    CHECK_EQ(end->status, 1);
    if (!CHECK(in_order(end->err, parts, LEN(parts))))
        fprintf(stderr, "%s\n", end->err);
    p = launch("-n 3", "mended");
    end = end_of(&p);
    CHECK_EQ(end->status, 3);
    CHECK_TEXT(end->err, "sherd: rank 0 exited with status 3\n");
}

static void who_asks_is_told(void)
{
    program p = launch("-n 3", "lags");

    for (int i = 0; i < 2; i++)
        until_they_wait(&p);
    send_signal(p.pid, SIGTERM);
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 128 + SIGTERM);
    CHECK_TEXT(last_line(end->err), "sherd: ended by signal 15 (SIGTERM)\n");
    CHECK_EQ(end->left, 0);
}

/* A program that starts its ranks itself tells it too. */
static void who_asks_a_program_is_told(void)
{
    char line[512];

    snprintf(line, sizeof line, "%s spawns", self);
    program p = program_start(line);
    until_they_wait(&p);
    send_signal(p.pid, SIGTERM);
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 128 + SIGTERM);
    CHECK_EQ(end->left, 0);
}

static void many_ranks_fit_a_screen(void)
{
    static const char *const parts[] = {"flight record: asked for",
                                        "  missing: ranks 0,9,18,27,36,45,54,63\n",
                                        "  ranks 1-7: waits ", "  ranks 56-62: waits "};
    program p = launch("-n 64", "groups");

    process_of(&p, 0);
    ask_until(&p, parts, LEN(parts));
    send_signal(p.pid, SIGTERM);
    const program_end *end = end_of(&p);
    CHECK(strstr(last_record(end->err), "  ranks 0-7: ") == NULL);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void check_record(const json_t *record)
{
    const json_t *ranks = json_object_get(record, "ranks"), *rank = json_array_get(ranks, 1);
    const json_t *wait = json_object_get(rank, "wait"), *call = json_object_get(wait, "call");
    char keys[256];

    CHECK_TEXT(text(record, "why"), "rank 2 was killed by signal 9 (SIGKILL)");
    CHECK(is_json(json_object_get(record, "missing"), "[2]"));
    CHECK_EQ(json_array_size(ranks), 3);
    keys_of(rank, keys, sizeof keys);
    CHECK_TEXT(keys, "rank process doing status wait calls last");
    CHECK_EQ(whole(rank, "rank"), 1);
    CHECK_TEXT(text(rank, "doing"), "waits");
    CHECK_EQ(whole(rank, "calls"), 3);
    keys_of(wait, keys, sizeof keys);
    CHECK_TEXT(keys, "seconds for to meeting call");
    CHECK(json_real_value(json_object_get(wait, "seconds")) > 0);
    CHECK(is_json(json_object_get(wait, "for"), "[2]"));
    CHECK_TEXT(text(wait, "to"), "make");
    CHECK(is_json(call, "{\"number\":3,\"group\":[0,1,2],\"label\":\"share\",\"done\":false}"));
    CHECK_EQ(json_array_size(json_object_get(rank, "last")), 3);
    rank = json_array_get(ranks, 2);
    CHECK_TEXT(text(rank, "doing"), "ended");
    CHECK_EQ(whole(rank, "status"), 137);
    CHECK(json_is_null(json_object_get(rank, "wait")));
}

static void the_record_is_had_as_json(void)
{
    char path[64], options[128];
    int file = program_file("record");

    for (int i = 0; i < 2000; i++) /* of an earlier record, that was longer */
        CHECK(write(file, "earlier ", 8) == 8);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), file);
    snprintf(options, sizeof options, "-n 3 --record %s", path);
    program p = launch(options, "lags");
    send_signal(until_they_wait(&p), SIGKILL);
    CHECK_EQ(end_of(&p)->status, 137);
    static char record[PROGRAM_TEXT];
    program_read(file, record);
    json_t *root = parsed(record);
    check_record(root);
    json_decref(root);
    close(file);
    check_refusal(&(refusal){"run -n 2 --record /nowhere/at/all true", 2, "/nowhere/at/all"});
    check_refusal(&(refusal){"run -n 2 --record /tmp true", 2, "Is a directory"});
}

/* A file is replaced as a whole, and nothing else is left. */
static void a_record_replaces_a_file(void)
{
    char folder[] = "/tmp/sherd-record-XXXXXX", options[160], path[128];

    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(path, sizeof path, "%s/record", folder);
    snprintf(options, sizeof options, "-n 2 --record %s", path);
    for (int i = 0; i < 2; i++) {
        program p = launch(options, "differs");
        CHECK_EQ(end_of(&p)->status, 1);
        json_t *root = json_load_file(path, 0, NULL);
        CHECK_EQ(json_array_size(json_object_get(root, "ranks")), 2);
        json_decref(root);
    }
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(folder), 0);
}

/* Nothing that is printed is lost where a record goes to the same file. */
static void a_record_stands_behind_what_is_printed(void)
{
    program p = launch("-n 3 --record /dev/stdout", "lags");

    send_signal(until_they_wait(&p), SIGKILL);
    const program_end *end = end_of(&p);
    const char *at = strstr(end->out, "rank 0 is ");
    if (CHECK(at != NULL))
        CHECK(strstr(at, "\"why\": \"rank 2 was killed by signal 9") != NULL);
}

/* Before the program runs. */
static void what_can_not_be_written_is_refused(void)
{
    static const char *const paths[] = {"", "/tmp", "/nowhere/record", "/proc/version/record"};

    for (int i = 0; i < LEN(paths); i++) {
        char options[160];
        snprintf(options, sizeof options, "-n 1 --record=%s", paths[i]);
        program p = launch(options, "differs");
        const program_end *end = end_of(&p);
        CHECK_EQ(end->status, 2);
        CHECK(strstr(end->err, "sherd run: --record: can not write ") != NULL);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void fill(void *out, size_t bytes, uint64_t *dice)
{
    unsigned char *at = out;

    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(roll(dice, 3) ? roll(dice, 4) : roll(dice, 256));
}

/* Ranks that are writing, have died while they did, or write where they should not. */
static void whatever_stands_there_is_read(void)
{
    static sherd__flight flight;
    static char page[SHERD__FLIGHT_ROOM];
    sherd__child child[4] = {{0}};
    sherd__arena arena;
    sherd__diag diag = {.rank = -1};
    uint64_t dice = 17;

    CHECK_OK(sherd__arena_create(&arena, 4, 1 << 22, NULL, &diag));
    sherd__rank_watch w = {.arena = &arena, .child = child, .ranks = 4};
    for (int turn = 0; turn < 300; turn++) {
        for (int r = 0; r < 4; r++) {
            fill(&arena.control->post[r], sizeof arena.control->post[r], &dice);
            atomic_store(&arena.control->post[r].presence, SHERD__PRESENT);
            for (int lane = 0; lane < 8; lane++)
                fill(sherd__arena_lane(&arena, r, lane), sizeof(sherd__lane), &dice);
        }
        sherd__flight_take(&flight, &w, "any reason", turn % 2);
        sherd__flight_text(&flight, page);
        if (!CHECK(fits_a_screen(page)))
            break;
        CHECK(sherd__ranks_next(&flight.missing, 4) < 0);
    }
    sherd__arena_unmap(&arena);
}

static const check_test tests[] = {
    {TEST(a_death_is_told_with_who_waits)},
    {TEST(an_exit_status_is_no_signal)},
    {TEST(a_timeout_is_told_with_who_waited)},
    {TEST(a_difference_is_told_where_it_was_the_end)},
    {TEST(who_asks_is_told)},
    {TEST(who_asks_a_program_is_told)},
    {TEST(many_ranks_fit_a_screen)},
    {TEST(the_record_is_had_as_json)},
    {TEST(a_record_replaces_a_file)},
    {TEST(what_can_not_be_written_is_refused)},
    {TEST(a_record_stands_behind_what_is_printed)},
    {TEST(whatever_stands_there_is_read)},
};

int main(int argc, char **argv)
{
    int exit_status = 0;

    self = argv[0];
    if (getenv("SHERD_RANK") && argc > 1)
        return play_launched(argv[1], play_rank);
    if (argc > 1 && strcmp(argv[1], "spawns") == 0)
        return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = 3}, body, NULL)
                   ? 1
                   : exit_status;
    return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
