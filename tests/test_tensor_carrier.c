/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that a carrier of threads brings together, and whose messages are spoiled on their way, as
 * a peer that is broken or of another version might send them: cut off, too long, of no kind, with
 * any words changed. Whatever comes, no rank crashes or waits for ever, all learn the same status,
 * and there is a line that says why.
 */
#define CHECK_PURE
#include "tensors.h"
#include "post_office.h"
#include "world/remote.h"

enum { REGION = 4 << 20 };

/* ---- letters that are spoiled ---------------------------------------------------------------- */

/* How a letter is spoiled. */
enum harm { NONE, CUT, LONGER, NO_KIND, NO_LANE, NOISE, WORD, BODY_CUT, BODY_MORE, HARMS };

typedef struct bad_office {
    post_office post;
    /* What is spoiled: the letter with this number (from 0) of a rank; gather: what rank 1 brings
     * first. */
    int sender, number;
    enum harm harm;
    uint64_t dice;
    bool spoil_gather, spoiled, seeds_differ;
    bool refused;  /* rank 2 has told rank 1 the end of the world */
    bool goodbyes; /* are spoiled, too */
    bool no_out;   /* rank 1 passes no place for its world */
    size_t region; /* of rank 1, if not that of the others */
    int claims;    /* letters of claims that were sent */
    /* The allocation that fails on a rank; *rich: it has asked for fewer. */
    int poor;
    int64_t fail_at;
    bool rich;
    bool no_room; /* for what rank 0 is sent of this kind */
    sherd__message_kind kind;
} bad_office;

static uint64_t draw(bad_office *o)
{
    o->dice = o->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return o->dice >> 33;
}

/* All words but the first, which is the carrier's. */
static void make_noise(bad_office *o, letter *l)
{
    for (size_t i = 8; i < l->head_bytes; i++)
        l->head[i] = (unsigned char)draw(o);
}

static void spoil(bad_office *o, letter *l)
{
    uint64_t word = draw(o);
    size_t at = 8 + 8 * (draw(o) % (l->head_bytes / 8 - 1));
    uint32_t large = UINT32_MAX - (uint32_t)draw(o) % 3;

    o->spoiled = true;
    if (o->harm == CUT)
        l->head_bytes = draw(o) % l->head_bytes;
    else if (o->harm == LONGER)
        l->head_bytes += 8 * (1 + draw(o) % 9);
    else if (o->harm == NO_KIND)
        memcpy(l->head + 8, &large, sizeof large);
    else if (o->harm == NO_LANE)
        memcpy(l->head + 12, &large, sizeof large);
    else if (o->harm == NOISE)
        make_noise(o, l);
    else if (o->harm == WORD)
        memcpy(l->head + at, &word, draw(o) % 2 ? 8 : 1);
    else if (o->harm == BODY_CUT)
        l->body_bytes /= 2;
    else if (o->harm == BODY_MORE)
        l->body_bytes += 64;
}

static void spoil_one(post_office *post, int from, int to, letter *l)
{
    bad_office *o = (bad_office *)post;
    sherd__head head = {.kind = 0};

    (void)to;
    if (l->head_bytes >= sizeof head)
        memcpy(&head, l->head, sizeof head);
    o->claims += head.kind == SHERD__SENT_CLAIMS;
    if (o->harm && from == o->sender && post->sent[from] == o->number &&
        (o->goodbyes || head.kind != SHERD__SENT_BYE))
        spoil(o, l);
}

static bool has_no_room(const post_office *post, int to, const letter *l)
{
    const bad_office *o = (const bad_office *)post;
    sherd__head head;

    memcpy(&head, l->head, sizeof head);
    return o->no_room && to == 0 && head.kind == (uint32_t)o->kind;
}

static void spoil_first(post_office *post, int rank, int gathering)
{
    if (((bad_office *)post)->spoil_gather && rank == 1 && gathering == 0)
        post->gathered[1][3] ^= 1;
}

/* ---- what ranks do --------------------------------------------------------------------------- */

typedef struct rank_end {
    seat seat;
    sherd_status opened, checked, closed;
    char error[SHERD_ERROR_BYTES];
    int64_t wrong;
} rank_end;

/* Moves of several kinds: one message, in parts, slices of a reduction, and more than one tensor;
 * and tensors that are claimed to be equal. */
static int64_t move_all(sherd_world *world)
{
    static const int64_t few[] = {7, 5}, more[] = {40, 30};
    const sherd_mesh *mesh = NULL;
    int64_t wrong = 0, ranks = RANKS;

    if (sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL))
        return 0;
    sherd_scope_begin(world);
    for (int i = 0; i < 4; i++) {
        const int64_t *shape = i % 2 ? more : few;
        const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
        const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);
        const sherd_layout *parts = layout_of(mesh, 2, shape, "P(sum)", NULL);
        const sherd_layout *whole = layout_of(mesh, 2, shape, "R", NULL);
        sherd_tensor *from[] = {indices_on(rows, SHERD_F32), indices_on(columns, SHERD_F64)};
        const sherd_layout *to[] = {columns, rows};
        sherd_tensor *two[2];
        sherd_tensor *moved = sherd__move_to(from[0], columns, false);
        sherd_tensor *sum = sherd__move_to(indices_on(parts, SHERD_F32), whole, false);
        sherd__move_list(two, from, to, 2, false);
        sherd_constant_on(whole, SHERD_F32, i);
        wrong += count_wrong(moved, 1) != 0 || count_wrong(sum, RANKS) != 0;
        wrong += sherd_world_check(world) != SHERD_OK;
        if (sherd_world_check(world) != SHERD_OK)
            break;
    }
    sherd_scope_end(world);
    return wrong;
}

static void *play(void *memory)
{
    rank_end *end = memory;
    sherd_carrier carrier = carrier_of(&end->seat);
    sherd_world *world = NULL;
    const bad_office *o = (bad_office *)end->seat.office;
    bool other = end->seat.rank == 1;
    sherd_world_options options = {.region_bytes = other && o->region ? o->region : REGION,
                                   .no_pin = true,
                                   .seed = other && o->seeds_differ ? 2 : 1,
                                   .error = end->error};

    end->opened = sherd_world_open_with(other && o->no_out ? NULL : &world, &carrier, &options);
    if (end->opened)
        return NULL;
    end->wrong = move_all(world);
    end->checked = sherd_world_check(world);
    snprintf(end->error, sizeof end->error, "%s", sherd_world_error(world));
    end->closed = sherd_world_close(world);
    return NULL;
}

/* Moves of a world in which one rank lacks memory for something. */
static void *play_poor(void *memory)
{
    static const int64_t shape[] = {40, 200};
    rank_end *end = memory;
    bad_office *o = (bad_office *)end->seat.office;
    sherd_carrier carrier = carrier_of(&end->seat);
    const sherd_world_options options = {.region_bytes = REGION, .no_pin = true};
    const sherd_mesh *mesh = NULL;
    sherd_world *world = NULL;

    end->opened = sherd_world_open_with(&world, &carrier, &options);
    if (!CHECK_OK(end->opened))
        return NULL;
    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){RANKS}, NULL, NULL));
    sherd_scope_begin(world);
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);
    const sherd_layout *whole = layout_of(mesh, 2, shape, "R", NULL);
    sherd_tensor *from = indices_on(rows, SHERD_F32);
    sherd_tensor *addend = indices_on(layout_of(mesh, 2, shape, "P(sum)", NULL), SHERD_F32);
    sherd_tensor *more[] = {from, addend};
    sherd_constant_on(whole, SHERD_F32, 1);
    if (end->seat.rank == o->poor)
        sherd_world_fail_allocation(world, o->fail_at);
    sherd__move_to(from, columns, false);
    sherd__move_to(addend, whole, false);
    sherd__move_to(from, whole, false);
    sherd__move_list(more, more, (const sherd_layout *[]){whole, rows}, 2, false);
    end->checked = sherd_world_check(world);
    snprintf(end->error, sizeof end->error, "%s", sherd_world_error(world));
    if (end->seat.rank == o->poor) {
        o->rich = sherd_world_allocations(world) < o->fail_at;
        sherd_world_fail_allocation(world, 0);
    }
    end->seat.office->refuses = NULL;
    end->wrong = count_wrong(sherd__move_to(from, whole, false), 1) != 0;
    end->wrong += sherd_world_check(world) != SHERD_OK;
    sherd_scope_end(world);
    end->closed = sherd_world_close(world);
    return NULL;
}

/* One world; what becomes of it. */
static void play_all(bad_office *o, rank_end *end)
{
    /* A proof waits for what is spoiled. Else a rank waits only on a full machine, but for seconds:
     * one that opens its world goes on when its guard has begun, in a session of its own. */
    setenv("SHERD_TIMEOUT", o->goodbyes ? "1" : "30", 1);
    o->post.sends = o->post.sends ? o->post.sends : spoil_one;
    o->post.brings = spoil_first;
    o->post.refuses = has_no_room;
    for (int r = 0; r < RANKS; r++)
        end[r] = (rank_end){.seat = {.office = &o->post, .rank = r}};
    play_at(&o->post, o->fail_at ? play_poor : play, end, sizeof *end);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void what_is_not_spoiled_goes_well(void)
{
    bad_office office = {.harm = NONE};
    rank_end end[RANKS];

    play_all(&office, end);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(end[r].opened, SHERD_OK);
        CHECK_EQ(end[r].checked, SHERD_OK);
        CHECK_EQ(end[r].wrong, 0);
        CHECK(office.post.sent[r] > 40); /* so there is something to spoil */
    }
    CHECK(office.claims > 0);
}

static void options_that_differ_are_named(void)
{
    bad_office office = {.harm = NONE, .seeds_differ = true};
    rank_end end[RANKS];

    play_all(&office, end);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(end[r].opened, SHERD_EDIFFER);
        CHECK(strstr(end[r].error, "sherd_world_open_with: rank 0 passed seed 1, ") != NULL);
        CHECK(strstr(end[r].error, ", rank 1 seed 2, ") != NULL);
    }
}

static void regions_that_differ_are_named(void)
{
    bad_office office = {.harm = NONE, .region = 2 * REGION};
    rank_end end[RANKS];

    play_all(&office, end);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(end[r].opened, SHERD_EDIFFER);
        CHECK(strstr(end[r].error, ", region 4194304, ") != NULL);
        CHECK(strstr(end[r].error, ", region 8388608") != NULL);
    }
}

/* Nobody waits for the rank that has made the mistake. */
static void a_mistake_of_one_rank_is_known_to_all(void)
{
    static const struct {
        size_t region;
        bool no_out;
        const char *text;
    } mistakes[] = {
        {.no_out = true, .text = "rank 1: sherd_world_open_with: out is NULL"},
        {.region = 5, .text = "rank 1: sherd_world_open_with: region_bytes is 5: expected 0, or "},
        {.region = (2 << 20) - 1, .text = "region_bytes is 2097151"},
        {.region = ((size_t)1 << 46) + 1, .text = "region_bytes is 70368744177665"},
        {.region = SIZE_MAX, .text = "region_bytes is 18446744073709551615"},
    };
    rank_end end[RANKS];

    for (int i = 0; i < LEN(mistakes); i++) {
        bad_office office = {
            .harm = NONE, .region = mistakes[i].region, .no_out = mistakes[i].no_out};
        play_all(&office, end);
        for (int r = 0; r < RANKS; r++) {
            CHECK_EQ(end[r].opened, SHERD_EINVAL);
            if (!CHECK(strstr(end[r].error, mistakes[i].text) != NULL))
                fprintf(stderr, "rank %d: %s\n", r, end[r].error);
        }
    }
}

static void a_peer_of_another_version_is_refused_by_all(void)
{
    bad_office office = {.spoil_gather = true};
    rank_end end[RANKS];

    play_all(&office, end);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(end[r].opened, SHERD_EINVAL);
        CHECK_TEXT(end[r].error, "ranks 0 and 1 run different versions of sherd");
    }
}

/* What a rank has learnt, at the latest when it closes its world. */
static sherd_status learnt(const rank_end *end)
{
    return end->opened ? end->opened : end->checked ? end->checked : end->closed;
}

/*
 * All learn the same, and who fails has one line. But who has closed its world well can learn no
 * more: that the others did not hear of it.
 */
static void check_ends(const bad_office *o, const rank_end *end)
{
    sherd_status first = SHERD_OK;
    bool same = true, said = true;

    for (int r = 0; r < RANKS; r++)
        first = first ? first : learnt(&end[r]);
    for (int r = 0; r < RANKS; r++) {
        bool closes = !end[r].opened && !end[r].checked;
        same &= learnt(&end[r]) == first || (closes && end[r].closed == SHERD_OK);
        said &= closes || (end[r].error[0] && !strchr(end[r].error, '\n'));
    }
    for (int r = 0; r < RANKS; r++) /* not while others still compute */
        same &=
            learnt(&end[r]) || !first || (!end[0].checked && !end[1].checked && !end[2].checked);
    if (CHECK(same) && CHECK(said))
        return;
    fprintf(stderr, "letter %d of rank %d, harm %d:\n", o->number, o->sender, (int)o->harm);
    for (int r = 0; r < RANKS; r++)
        fprintf(stderr, "  rank %d: %s, %s, %s: %s\n", r, sherd_status_name(end[r].opened),
                sherd_status_name(end[r].checked), sherd_status_name(end[r].closed), end[r].error);
}

/* Each letter of a rank in turn, or those that a number of steps leads to; but its goodbyes, for
 * which the others wait some seconds, only in a proof. A busy machine makes for more letters. */
static void spoil_all(int sender, int step, bool proof, uint64_t seed)
{
    bad_office untouched = {.harm = NONE};
    rank_end end[RANKS];

    play_all(&untouched, end);
    int letters = untouched.post.sent[sender] - (proof ? 0 : RANKS - 1);
    for (int number = 0; number < letters; number += step)
        for (int harm = CUT; harm < HARMS; harm++) {
            bad_office office = {.harm = (enum harm)harm,
                                 .sender = sender,
                                 .number = number,
                                 .goodbyes = proof,
                                 .dice = seed + (uint64_t)(number * HARMS + harm)};
            play_all(&office, end);
            check_ends(&office, end);
        }
}

static void no_spoiled_message_crashes_or_divides_the_ranks(void)
{
    bool proof = getenv("SHERD_PROOF") != NULL;

    spoil_all(0, proof ? 2 : 23, proof, 1);
    spoil_all(1, proof ? 2 : 17, proof, 2);
}

/* What rank 0 sends makes no sense, and rank 1 hears nothing before rank 2 has said so. */
static void spoil_two(post_office *post, int from, int to, letter *l)
{
    sherd__head head;

    memcpy(&head, l->head, sizeof head);
    ((bad_office *)post)->refused |= to == 1 && from == 2 && head.kind == SHERD__SENT_END;
    if (from == 0)
        memset(l->head + 12, 0xFF, 4); /* its lane */
}

static bool is_early(const post_office *post, int to, const letter *l)
{
    return to == 1 && l && !((const bad_office *)post)->refused;
}

static void who_refuses_what_was_refused_before_says_the_same(void)
{
    bad_office office = {.harm = NO_LANE, .post = {.sends = spoil_two, .keeps = is_early}};
    rank_end end[RANKS];

    play_all(&office, end);
    for (int r = 0; r < RANKS; r++)
        CHECK(learnt(&end[r]) == SHERD_EPEER && strncmp(end[r].error, "rank 2: ", 8) == 0);
}

/* A line that names its rank does so once. */
static bool is_said_once(const char *error)
{
    int first = -1, second = -2;

    return sscanf(error, "rank %d: rank %d: ", &first, &second) != 2 || first != second;
}

/* All have learnt the same, and have gone on from there; false: none has failed. */
static bool check_poor(const rank_end *end)
{
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(end[r].wrong, 0);
        CHECK_OK(end[r].closed);
        CHECK_EQ(learnt(&end[r]), learnt(&end[0]));
        CHECK(learnt(&end[r]) == SHERD_OK || learnt(&end[r]) == SHERD_ENOMEM);
        if (!CHECK(is_said_once(end[r].error)))
            fprintf(stderr, "%s\n", end[r].error);
    }
    return learnt(&end[0]) != SHERD_OK;
}

static void no_memory_on_one_rank_is_no_memory_on_all(void)
{
    rank_end end[RANKS];
    int failed = 0;

    for (int poor = 0; poor < 2; poor++) {
        bool rich = false;
        for (int64_t n = 1; !rich; n += 1 + n / (getenv("SHERD_PROOF") ? 12 : 8)) {
            bad_office office = {.harm = NONE, .poor = poor, .fail_at = n};
            play_all(&office, end);
            rich = office.rich;
            failed += check_poor(end);
        }
    }
    CHECK(failed > 40);
}

/* Claims come while rank 0 waits for them at a meeting: a check that passes has seen them. */
static void what_there_is_no_room_for_fails_on_all(void)
{
    static const struct {
        sherd__message_kind kind;
        const char *part; /* so that it has a body */
    } cases[] = {{SHERD__SENT_CALL, "100000"},
                 {SHERD__SENT_PART, "9000"},
                 {SHERD__SENT_SLICE, "9000"},
                 {SHERD__SENT_CLAIMS, "9000"}};
    rank_end end[RANKS];

    for (int i = 0; i < LEN(cases); i++) {
        bad_office office = {
            .harm = NONE, .fail_at = 1 << 20, .no_room = true, .kind = cases[i].kind};
        setenv("SHERD_PART", cases[i].part, 1);
        play_all(&office, end);
        if (!CHECK(check_poor(end)))
            fprintf(stderr, "  kind %d\n", (int)cases[i].kind);
    }
    setenv("SHERD_PART", "256", 1);
}

/* Whatever the carrier says, it is one line. */
static void a_carrier_that_fails_ends_the_world_for_all(void)
{
    static const int at[] = {1, 9, 20};
    rank_end end[RANKS];

    for (int i = 0; i < LEN(at); i++) {
        bad_office office = {.post = {.breaks = 1, .at = at[i]}, .sender = 1, .number = at[i]};
        play_all(&office, end);
        check_ends(&office, end);
        for (int r = 0; r < RANKS; r++)
            if (!CHECK(learnt(&end[r]) == SHERD_EPEER) ||
                !CHECK(strstr(end[r].error, "rank 1: does not send to rank ") != NULL) ||
                !CHECK(strstr(end[r].error, "the letter is lost: who knows?") != NULL))
                fprintf(stderr, "  %s\n", end[r].error);
    }
}

static const check_test tests[] = {
    {TEST(what_is_not_spoiled_goes_well)},
    {TEST(options_that_differ_are_named)},
    {TEST(regions_that_differ_are_named)},
    {TEST(a_mistake_of_one_rank_is_known_to_all)},
    {TEST(a_peer_of_another_version_is_refused_by_all)},
    {TEST(no_memory_on_one_rank_is_no_memory_on_all)},
    {TEST(who_refuses_what_was_refused_before_says_the_same)},
    {TEST(a_carrier_that_fails_ends_the_world_for_all)},
    {TEST(what_there_is_no_room_for_fails_on_all)},
    {TEST(no_spoiled_message_crashes_or_divides_the_ranks)},
};

int main(int argc, char **argv)
{
    setenv("SHERD_TRANSPORT", "mpi", 1);
    setenv("SHERD_PART", "256", 1);
    setenv("SHERD_VERIFY", "1", 1);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
