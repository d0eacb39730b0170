/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a pipeline's forwards and backwards (Narayanan et al., "Efficient Large-Scale
 * Language Model Training on GPU Clusters Using Megatron-LM", 2021). Microbatches go in groups, of
 * as many as there are places: a place takes a group through its first stage, then through its
 * second, and so on; backward the other way round. It begins with some forwards, then takes
 * forwards and backwards in turns, and ends with the backwards that are left.
 *
 * With v stages at each of p places, place i begins with p - i - 1 forwards, or with
 * 2 (p - i - 1) + (v - 1) p if v > 1. That is known to work where p divides the number of
 * microbatches. Where it does not, or where places have not equally many stages, turns are played:
 * if all places come to wait for each other, each begins with more forwards, as few as will do.
 * With all forwards first (GPipe) nothing waits in a circle.
 *
 * With zero bubbles (Qi et al., "Zero Bubble Pipeline Parallelism", 2023: ZB-H1) a backward of
 * weights comes after a backward of inputs as soon as more than i are outstanding at place i. So
 * the later a place is, the more of them it has for the time when the pipeline empties, and with
 * those places keep equally many microbatches. They wait for nobody, and nobody for them.
 *
 * If stages go there and back (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024: V
 * schedules; ZB-V), place i has stage i and the i-th from the end. The first microbatch is back at
 * place i when that has begun 2 (p - i) - 1 others; from then on it takes turns of both its stages,
 * each with a backward of the other, and of weights at once; only those of the end wait, for the
 * time when the pipeline empties. That is PyTorch's ScheduleZBVZeroBubble, to the turn.
 */
#include "parallel/turns.h"

static bool is_v(const sherd__turns *t)
{
    return t->schedule == SHERD_PIPELINE_ZERO_BUBBLE_V;
}

int sherd__turns_place(const sherd__turns *t, int stage)
{
    return is_v(t) && stage >= t->places ? 2 * t->places - 1 - stage : stage % t->places;
}

/* How many stages lie at a place. */
static int stages_at(const sherd__turns *t, int place)
{
    if (is_v(t))
        return 2;
    return (t->stages - place + t->places - 1) / t->places;
}

/* The next microbatch and stage in the order of forwards, or of backwards. */
typedef struct walker {
    const sherd__turns *turns;
    int place, round; /* stage = round * places + place */
    sherd_pipeline_kind kind;
    int64_t first, microbatch; /* of the group; the next one */
} walker;

static walker walk(const sherd__turns *t, int place, sherd_pipeline_kind kind)
{
    return (walker){t, place, kind ? stages_at(t, place) - 1 : 0, kind, 0, 0};
}

static sherd_pipeline_turn take(walker *w)
{
    const sherd__turns *t = w->turns;
    sherd_pipeline_turn turn = {w->round * t->places + w->place, w->kind, w->microbatch};
    int last = w->kind ? 0 : stages_at(t, w->place) - 1;

    if (++w->microbatch < w->first + t->places && w->microbatch < t->count)
        return turn;
    if (w->round == last) {
        w->round = w->kind ? stages_at(t, w->place) - 1 : 0;
        w->first += t->places;
    } else {
        w->round += w->kind ? -1 : 1;
    }
    w->microbatch = w->first;
    return turn;
}

/* How many forwards come before the first backward, the one beside it not counted. */
static int64_t first_forwards(const sherd__turns *t, int place, int64_t all)
{
    int64_t after = t->places - place - 1;
    int64_t rounds = stages_at(t, 0);
    int64_t first = rounds == 1 ? after : 2 * after + (rounds - 1) * t->places;

    if (t->schedule == SHERD_PIPELINE_GPIPE || first + t->extra > all)
        return all;
    return first + t->extra;
}

/* A list that is written, or only counted. */
typedef struct writer {
    sherd_pipeline_turn *out;
    int64_t at;
    walker forth, back, rest;
    int64_t outstanding, most; /* backwards of weights, and how many may be */
    bool parts;                /* backwards have two */
} writer;

static void write(writer *w, walker *next)
{
    sherd_pipeline_turn turn = take(next);

    if (w->out)
        w->out[w->at] = turn;
    w->at++;
}

static void write_weights(writer *w, int64_t most)
{
    for (; w->outstanding > most; w->outstanding--)
        write(w, &w->rest);
}

static void write_backward(writer *w)
{
    write(w, &w->back);
    w->outstanding += w->parts;
    write_weights(w, w->most);
}

/* ---- there and back -------------------------------------------------------------------------- */

enum { FORTH, BACK }; /* the stage of a place on the way there, and back */
enum { KINDS = SHERD_PIPELINE_BACKWARD_WEIGHTS + 1 };

typedef struct v_writer {
    const sherd__turns *turns;
    int place;
    sherd_pipeline_turn *out;
    int64_t at, done[2][KINDS];
} v_writer;

/* The next turn of a stage and kind; nothing if that is of a microbatch that there is not. */
static void put(v_writer *w, int way, sherd_pipeline_kind kind)
{
    const sherd__turns *t = w->turns;
    int stage = way == FORTH ? w->place : t->stages - 1 - w->place;
    int64_t microbatch = w->done[way][kind]++;

    if (microbatch >= t->count)
        return;
    if (w->out)
        w->out[w->at] = (sherd_pipeline_turn){stage, kind, microbatch};
    w->at++;
}

static void put_backward(v_writer *w, int way)
{
    put(w, way, SHERD_PIPELINE_BACKWARD_INPUTS);
    put(w, way, SHERD_PIPELINE_BACKWARD_WEIGHTS);
}

/* Until as many backwards of weights were done as of inputs. */
static void put_weights(v_writer *w, int way)
{
    while (w->done[way][SHERD_PIPELINE_BACKWARD_WEIGHTS] <
           w->done[way][SHERD_PIPELINE_BACKWARD_INPUTS])
        put(w, way, SHERD_PIPELINE_BACKWARD_WEIGHTS);
}

/* As for at least 2 p - 1 microbatches: that many keep all places busy. */
static int64_t turns_of_v(const sherd__turns *t, int place, sherd_pipeline_turn *out)
{
    v_writer w = {.turns = t, .place = place, .out = out};
    int64_t full = 2 * (int64_t)t->places - 1, all = t->count > full ? t->count : full;
    const int64_t *forth = w.done[FORTH], *back = w.done[BACK];
    int after = t->places - place;

    for (int i = 0; i < 2 * after - 1; i++)
        put(&w, FORTH, SHERD_PIPELINE_FORWARD);
    for (int64_t i = 0; i < (t->forward_only ? all : place); i++) {
        put(&w, BACK, SHERD_PIPELINE_FORWARD);
        put(&w, FORTH, SHERD_PIPELINE_FORWARD);
    }
    if (t->forward_only)
        return w.at;
    for (int i = 0; i < after; i++) {
        put(&w, BACK, SHERD_PIPELINE_FORWARD);
        put_backward(&w, BACK);
    }
    while (back[SHERD_PIPELINE_FORWARD] < all) {
        if (forth[SHERD_PIPELINE_FORWARD] < all)
            put(&w, FORTH, SHERD_PIPELINE_FORWARD);
        put_backward(&w, FORTH);
        put(&w, BACK, SHERD_PIPELINE_FORWARD);
        put_backward(&w, BACK);
    }
    for (int i = 0; i < place; i++) {
        put(&w, FORTH, SHERD_PIPELINE_BACKWARD_INPUTS);
        put(&w, BACK, SHERD_PIPELINE_BACKWARD_INPUTS);
    }
    for (int i = 0; i < after; i++)
        put_backward(&w, FORTH);
    put_weights(&w, BACK);
    put_weights(&w, FORTH);
    return w.at;
}

/* ---- all schedules --------------------------------------------------------------------------- */

int64_t sherd__turns_of(const sherd__turns *t, int place, sherd_pipeline_turn *out)
{
    if (is_v(t))
        return turns_of_v(t, place, out);
    int64_t all = t->count * stages_at(t, place), first = first_forwards(t, place, all);
    bool parts = t->schedule == SHERD_PIPELINE_ZERO_BUBBLE;
    writer w = {
        .out = out,
        .forth = walk(t, place, SHERD_PIPELINE_FORWARD),
        .back = walk(t, place, parts ? SHERD_PIPELINE_BACKWARD_INPUTS : SHERD_PIPELINE_BACKWARD),
        .rest = walk(t, place, SHERD_PIPELINE_BACKWARD_WEIGHTS),
        .most = place,
        .parts = parts};

    if (t->forward_only)
        first = all;
    for (int64_t i = 0; i < first; i++)
        write(&w, &w.forth);
    for (int64_t i = first; i < all; i++) {
        write(&w, &w.forth);
        write_backward(&w);
    }
    for (int64_t i = 0; i < first && !t->forward_only; i++)
        write_backward(&w);
    write_weights(&w, 0);
    return w.at;
}

/* ---- playing --------------------------------------------------------------------------------- */

/* All places at some moment: what has been sent to a stage, and what it has taken. */
typedef struct game {
    const sherd__turns *turns;
    sherd_pipeline_turn **list;  /* [places] */
    int64_t *length, *at;        /* [places] */
    int64_t *sent[2], *taken[2]; /* [stages]: forward, backward */
} game;

/* Whether a place can take its next turn: what it needs is there, and what it sends has room. */
static bool can(const game *g, int place)
{
    const sherd_pipeline_turn *turn = &g->list[place][g->at[place]];
    int back = turn->kind != SHERD_PIPELINE_FORWARD, s = turn->stage, last = g->turns->stages - 1;
    int next = back ? s - 1 : s + 1;
    bool first = back ? s == last : s == 0, ends = back ? s == 0 : s == last;
    bool stays = !ends && sherd__turns_place(g->turns, next) == place; /* it is not sent */

    if (turn->kind == SHERD_PIPELINE_BACKWARD_WEIGHTS)
        return true;
    return (first || g->sent[back][s] > g->taken[back][s]) &&
           (ends || stays || g->sent[back][next] - g->taken[back][next] < SHERD__SENDS_AHEAD);
}

static void move_on(game *g, int place)
{
    const sherd_pipeline_turn *turn = &g->list[place][g->at[place]++];
    int back = turn->kind != SHERD_PIPELINE_FORWARD,
        next = back ? turn->stage - 1 : turn->stage + 1;

    if (turn->kind == SHERD_PIPELINE_BACKWARD_WEIGHTS)
        return;
    g->taken[back][turn->stage]++;
    if (next >= 0 && next < g->turns->stages)
        g->sent[back][next]++;
}

/* Whether all places come to the end of their turns. */
static bool play(game *g)
{
    bool moved = true, ended = true;

    for (int p = 0; p < g->turns->places; p++)
        g->length[p] = sherd__turns_of(g->turns, p, g->list[p]);
    while (moved) {
        moved = false;
        for (int p = 0; p < g->turns->places; p++)
            while (g->at[p] < g->length[p] && can(g, p)) {
                move_on(g, p);
                moved = true;
            }
    }
    for (int p = 0; p < g->turns->places; p++)
        ended = ended && g->at[p] == g->length[p];
    return ended;
}

static void close_game(game *g, sherd__heap *heap)
{
    for (int p = 0; g->list && p < g->turns->places; p++)
        sherd__free(heap, g->list[p]);
    sherd__free(heap, g->list);
    sherd__free(heap, g->length);
}

/* Numbers of all kinds are in one array. */
static bool open_game(game *g, const sherd__turns *t, sherd__heap *heap)
{
    size_t places = (size_t)t->places, stages = (size_t)t->stages;
    bool good;

    *g = (game){.turns = t};
    g->list = sherd__alloc(heap, places, sizeof *g->list);
    g->length = sherd__alloc(heap, 2 * places + 4 * stages, sizeof *g->length);
    good = g->list && g->length;
    for (int p = 0; good && p < t->places; p++) {
        g->list[p] = sherd__alloc(heap, (size_t)sherd__turns_of(t, p, NULL), sizeof **g->list);
        good = g->list[p] != NULL;
    }
    if (!good) {
        close_game(g, heap);
        return false;
    }
    g->at = g->length + places;
    for (int back = 0; back < 2; back++) {
        g->sent[back] = g->at + places + (size_t)(2 * back) * stages;
        g->taken[back] = g->sent[back] + stages;
    }
    return true;
}

/* Whether all places come to the end if each begins with so many forwards more. */
static bool ends(bool *room, sherd__turns *t, int64_t extra, sherd__heap *heap)
{
    game g;

    t->extra = extra;
    *room = open_game(&g, t, heap);
    bool ended = *room && play(&g);
    if (*room)
        close_game(&g, heap);
    return ended;
}

/*
 * One more after the other as long as there are few, then up by steps that double, and down to the
 * least: where places have not equally many stages it is about twice the number of microbatches,
 * which may be thousands.
 */
bool sherd__turns_fit(sherd__turns *t, sherd__heap *heap)
{
    int64_t low = 0, high = t->count * stages_at(t, 0); /* with that all forwards come first */
    const int64_t few = 4 * (int64_t)t->places;
    bool room = true, ended = false;

    for (int64_t at = 0; room && !ended && at < high; at = at < few ? at + 1 : 2 * at) {
        ended = ends(&room, t, at, heap);
        if (ended)
            high = at;
        else
            low = at + 1;
    }
    while (room && low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ends(&room, t, middle, heap))
            high = middle;
        else
            low = middle + 1;
    }
    t->extra = high;
    return room;
}
