/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the model, each for one or two of the rules. Blocks A and B are sources, C and D
 * results. PULL(g, from, to): a part from each rank of `from` into C, and each of `to` pulls one
 * from me.
 */
#include "programs.h"

#include <string.h>

enum { A, B, C, D };
enum { R0 = 1, R1 = 2, R2 = 4, R01 = 3, R02 = 5, R12 = 6, ALL3 = 7, NOBODY = 0 };

/* clang-format off */
#define PULL(g, from_, to_)            {.verb = CALL, .group = g, .source = A, .result = C, .from = from_, .to = to_}
#define PULL_B(g, from_, to_)          {.verb = CALL, .group = g, .source = B, .result = D, .from = from_, .to = to_}
#define PULL_AS(n, g, from_, to_)      {.verb = CALL, .group = g, .source = A, .result = C, .from = from_, .to = to_, .what = n}
#define PASS_ON(g, from_, to_)         {.verb = CALL, .group = g, .source = C, .result = D, .from = from_, .to = to_}
#define CARRY(g, from_, to_)           {.verb = CALL, .group = g, .source = A, .result = C, .from = from_, .to = to_, .carried = true}
#define BEGIN(g, from_, to_)           {.verb = CALL, .group = g, .source = A, .result = C, .from = from_, .to = to_, .begun = true}
#define BEGIN_AS(n, g, from_, to_)     {.verb = CALL, .group = g, .source = A, .result = C, .from = from_, .to = to_, .begun = true, .what = n}
#define BEGIN_D(g, from_, to_)         {.verb = CALL, .group = g, .source = A, .result = D, .from = from_, .to = to_, .begun = true}
#define IDLE(g)                        {.verb = CALL, .group = g, .source = NONE, .result = NONE}
#define IDLE_AS(n, g)                  {.verb = CALL, .group = g, .source = NONE, .result = NONE, .what = n}
#define SUM(g)                         {.verb = ALL, .group = g, .source = A, .result = C}
#define BEGIN_SUM(g)                   {.verb = ALL, .group = g, .source = A, .result = C, .begun = true}
#define USE(block)                     {.verb = END, .source = block}
#define PUT(block)                     {.verb = WRITE, .source = block}
#define GET(block)                     {.verb = READ, .source = block}
#define FAILS                          {.verb = FAIL}
#define TEST                           {.verb = CHECK}
#define JOIN(n)                        {.verb = AGREE, .what = n}

const model_program model_programs[] = {
    {.name = "two pull and write", .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1), PUT(A), PULL(0, R1, R1), PUT(A), GET(C), TEST},
        {PULL(0, R0, R0), PUT(A), PULL(0, R0, R0), PUT(A), GET(C), TEST}}},
    {.name = "three times, and again in the next round", .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1), PUT(A), PULL(0, R1, R1), PUT(A), PULL(0, R1, R1), TEST, PULL(0, R1, R1), PUT(A), TEST},
        {PULL(0, R0, R0), PUT(A), PULL(0, R0, R0), PUT(A), PULL(0, R0, R0), TEST, PULL(0, R0, R0), PUT(A), TEST}}},
    {.name = "one sends, four times", .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), PULL_B(0, NOBODY, R1), PULL(0, NOBODY, R1), PUT(A), PULL_B(0, NOBODY, R1), PUT(B), TEST},
        {PULL(0, R0, NOBODY), PULL(0, R0, NOBODY), PULL(0, R0, NOBODY), PULL(0, R0, NOBODY), TEST}}},
    {.name = "groups in different order", .ranks = 3, .member = {R01, R12, ALL3}, .op = {
        {PULL(0, R1, R1), PUT(A), SUM(2), PUT(A), TEST},
        {PULL(1, R2, R2), PULL(0, R0, R0), PUT(A), SUM(2), TEST},
        {PULL(1, R1, R1), SUM(2), PUT(C), GET(C), TEST}}},
    {.name = "two sum twice", .ranks = 2, .member = {R01}, .op = {
        {PUT(A), SUM(0), GET(C), PUT(A), PUT(C), SUM(0), GET(C), TEST},
        {PUT(A), PUT(A), SUM(0), PUT(A), PUT(C), SUM(0), GET(C), TEST}}},
    {.name = "three sum", .ranks = 3, .member = {ALL3}, .op = {
        {SUM(0), PUT(A), GET(C), TEST},
        {SUM(0), PUT(C), GET(C), TEST},
        {PUT(A), SUM(0), GET(C), TEST}}},
    {.name = "begin, another call, write, end", .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), IDLE(0), PUT(A), USE(C), PULL(0, R1, R1), TEST},
        {BEGIN(0, R0, R0), IDLE(0), PUT(A), USE(C), PULL(0, R0, R0), TEST}}},
    {.name = "a begun call goes on in another wait", .ranks = 3, .member = {R01, R02, R12}, .op = {
        {BEGIN(0, R1, R1), PULL_B(1, R2, R2), USE(C), TEST},
        {PULL(0, R0, R0), PUT(A), PULL_B(2, R2, R2), TEST},
        {PULL(2, R1, R1), PULL_B(1, R0, R0), TEST}}},
    {.name = "one storage to different readers", .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, NOBODY, R1), PULL(0, NOBODY, R2), PUT(A), TEST},
        {BEGIN(0, R0, NOBODY), IDLE(0), USE(C), TEST},
        {IDLE(0), PULL(0, R0, NOBODY), TEST}}},
    {.name = "a later call ends before an earlier one", .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), PULL_B(0, NOBODY, R1), PUT(A), TEST},
        {BEGIN(0, R0, NOBODY), PULL_B(0, R0, NOBODY), USE(C), TEST}}},
    {.name = "one without data", .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, R1, R1), PULL(0, R1, R1), PULL(0, R1, R1), SUM(0), TEST},
        {PULL(0, R0, R0), PULL(0, R0, R0), PULL(0, R0, R0), SUM(0), TEST},
        {IDLE(0), IDLE(0), IDLE(0), SUM(0), TEST}}},
    {.name = "a failure, and a new epoch", .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1), PULL(0, R1, R1), FAILS, TEST, PULL(0, NOBODY, R1), PUT(A), TEST},
        {PULL(0, R0, R0), PULL(0, R0, R0), TEST, PULL(0, R0, NOBODY), TEST}}},
    {.name = "a new epoch of two groups", .ranks = 3, .member = {ALL3, R01}, .op = {
        {PULL(0, R1, R2), PULL(1, R1, R1), TEST, PULL(0, R1, R2), PUT(A), TEST},
        {PULL(0, R2, R0), PULL(1, R0, R0), FAILS, TEST, PULL(0, R2, R0), PUT(A), TEST},
        {PULL(0, R0, R1), TEST, PULL(0, R0, R1), PUT(A), TEST}}},
    {.name = "sums in flight", .ranks = 2, .member = {R01, R01}, .op = {
        {BEGIN_SUM(0), PULL_B(1, R1, R1), PUT(A), USE(C), PUT(C), GET(C), TEST},
        {BEGIN_SUM(0), PULL_B(1, R0, R0), PUT(A), USE(C), PUT(C), GET(C), TEST}}},
    {.name = "more are begun than a ring has room for", .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), BEGIN_D(0, R1, R1), PULL_B(0, R1, R1), PUT(A), TEST},
        {BEGIN(0, R0, R0), BEGIN_D(0, R0, R0), PULL_B(0, R0, R0), PUT(A), TEST}}},
    {.name = "a begun call spans a check", .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), TEST, USE(C), TEST},
        {PULL(0, R0, R0), PUT(A), TEST, TEST}}},
    {.name = "an own begun call reads what is overwritten", .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, NOBODY), PUT(A), USE(C), TEST},
        {PULL(0, NOBODY, R0), TEST}}},
    {.name = "a result in flight is passed on", .ranks = 2, .member = {R01}, .op = {
        {PUT(A), PULL(0, NOBODY, R1), PASS_ON(0, R1, NOBODY), GET(D), TEST},
        {BEGIN(0, R0, NOBODY), PASS_ON(0, NOBODY, R0), TEST}}},
    {.name = "a source becomes a result", .ranks = 2, .member = {R01}, .op = {
        {PASS_ON(0, NOBODY, R1), PULL(0, R1, NOBODY), TEST},
        {BEGIN(0, R0, NOBODY), PULL_B(0, NOBODY, R0), USE(C), TEST}}},
    {.name = "what is carried is written at once", .ranks = 2, .member = {R01, R01}, .op = {
        {CARRY(0, NOBODY, R1), PUT(A), PULL_B(1, R1, R1), TEST},
        {PULL_B(1, R0, R0), CARRY(0, R0, NOBODY), TEST}}},
    {.name = "carried, three times", .ranks = 2, .member = {R01}, .op = {
        {CARRY(0, R1, R1), PUT(A), CARRY(0, R1, R1), PUT(A), CARRY(0, R1, R1), TEST},
        {CARRY(0, R0, R0), PUT(A), CARRY(0, R0, R0), PUT(A), CARRY(0, R0, R0), TEST}}},
    {.name = "a failed check drops a sum", .ranks = 2, .member = {R01}, .op = {
        {BEGIN_SUM(0), TEST, PUT(C), GET(C), TEST, GET(C), TEST},
        {BEGIN_SUM(0), FAILS, TEST, PUT(C), GET(C), TEST, GET(C), TEST}}},
    {.name = "agreeing, with a call in flight", .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), JOIN(1), PUT(A), USE(C), TEST},
        {BEGIN(0, R0, R0), JOIN(1), PUT(A), USE(C), TEST}}},
    {.name = "a failure right after a check", .ranks = 2, .member = {R01}, .op = {
        {TEST, FAILS, TEST},
        {TEST, TEST}}},
    {.name = "one fails, and skips what the others agree on", .ranks = 2, .member = {R01}, .op = {
        {FAILS, TEST, PULL(0, R1, R1), TEST},
        {JOIN(1), JOIN(2), TEST, PULL(0, R0, R0), TEST}}},
    {.name = "three check", .ranks = 3, .op = {
        {TEST},
        {TEST},
        {TEST}}},

    /* Wrong: the ranks do different things. */
    {.name = "one skips the call", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1), TEST},
        {TEST}}},
    {.name = "the reader skips, the sender writes", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), PUT(A), TEST},
        {TEST}}},
    {.name = "the reader skips, and that is all", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), TEST},
        {TEST}}},
    {.name = "different calls", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL_AS(1, 0, R1, R1), TEST},
        {PULL_AS(2, 0, R0, R0), TEST}}},
    {.name = "different calls, long ago", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {IDLE_AS(1, 0), PULL(0, R1, R1), TEST},
        {IDLE_AS(2, 0), PULL(0, R0, R0), TEST}}},
    {.name = "one is many calls ahead", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1), TEST},
        {IDLE_AS(1, 0), IDLE_AS(1, 0), IDLE_AS(1, 0), PULL(0, R0, R0), TEST}}},
    {.name = "two groups in opposite order", .wrong = true, .ranks = 2, .member = {R01, R01}, .op = {
        {PULL(0, R1, R1), PULL_B(1, R1, R1), TEST},
        {PULL_B(1, R0, R0), PULL(0, R0, R0), TEST}}},
    {.name = "orders in a ring", .wrong = true, .ranks = 3, .member = {R01, R12, R02}, .op = {
        {PULL(0, R1, R1), PULL_B(2, R2, R2), TEST},
        {PULL(1, R2, R2), PULL_B(0, R0, R0), TEST},
        {PULL(2, R0, R0), PULL_B(1, R1, R1), TEST}}},
    {.name = "a ring through a begun call", .wrong = true, .ranks = 3, .member = {ALL3, R02}, .op = {
        {PULL(0, NOBODY, R1), PUT(A), PULL_B(1, R2, R2), TEST},
        {BEGIN(0, R02, NOBODY), USE(C), TEST},
        {PULL_B(1, R0, R0), PULL(0, NOBODY, R1), TEST}}},
    {.name = "a call that nobody reads is another", .wrong = true, .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, R1, R1), TEST},
        {PULL(0, R0, R0), TEST},
        {IDLE_AS(2, 0), TEST}}},
    {.name = "a call that nobody reads is missing", .wrong = true, .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, R1, R1), PULL(0, R1, R1), SUM(0), TEST},
        {PULL(0, R0, R0), PULL(0, R0, R0), SUM(0), TEST},
        {IDLE(0), SUM(0), TEST}}},
    {.name = "begun, and never made by the other", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), TEST, PULL(0, R1, R1), TEST},
        {TEST, PULL(0, R0, R0), TEST}}},
    {.name = "a writer waits for one at the check with another call", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL_AS(1, 0, NOBODY, R1), PUT(A), TEST},
        {BEGIN_AS(2, 0, R0, NOBODY), TEST}}},
    {.name = "a writer waits for one that waits for a third at the check", .wrong = true, .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, NOBODY, R1), PUT(A), TEST},
        {BEGIN(0, R02, NOBODY), TEST},
        {TEST}}},
    {.name = "they agree on nothing", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), JOIN(1), PUT(A), TEST},
        {BEGIN(0, R0, R0), JOIN(2), PUT(A), TEST}}},
    {.name = "one agrees, the other checks", .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, R1), JOIN(1), PUT(A), TEST, PULL(0, R1, R1), TEST},
        {BEGIN(0, R0, R0), TEST, PULL(0, R0, R0), TEST}}},
    {.name = "two agree, one checks", .wrong = true, .ranks = 3, .member = {R01}, .op = {
        {JOIN(1), TEST, PULL(0, R1, R1), TEST},
        {JOIN(1), TEST, PULL(0, R0, R0), TEST},
        {TEST, TEST}}},

    /* Ranks that sleep, look by look. */
    {.name = "asleep: two pull", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, R1)},
        {PULL(0, R0, R0)}}},
    {.name = "asleep: two sum", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {SUM(0)},
        {SUM(0)}}},
    {.name = "asleep: one reads, the other writes", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), PUT(A)},
        {PULL(0, R0, NOBODY)}}},
    {.name = "asleep: one begins and goes", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, NOBODY, R1)},
        {PULL(0, R0, NOBODY)}}},
    {.name = "asleep: one fails and goes", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {FAILS},
        {PULL(0, R0, NOBODY)}}},
    {.name = "asleep: a slot is wanted again", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, NOBODY, R1), PULL(0, NOBODY, R1), PULL(0, NOBODY, R1)},
        {PULL(0, R0, NOBODY), PULL(0, R0, NOBODY), PULL(0, R0, NOBODY)}}},
    {.name = "asleep: a check", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {TEST},
        {TEST}}},
    {.name = "asleep: one fails, the other waits", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {FAILS, TEST},
        {PULL(0, R0, NOBODY), TEST}}},
    {.name = "asleep: one fails, the other is at the check", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {FAILS, TEST},
        {TEST}}},
    {.name = "asleep: one skips the call", .sleeps = true, .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL(0, R1, NOBODY), TEST},
        {TEST}}},
    {.name = "asleep: two groups in opposite order", .sleeps = true, .wrong = true, .ranks = 2, .member = {R01, R01}, .op = {
        {PULL(0, R1, R1), PULL_B(1, R1, R1), TEST},
        {PULL_B(1, R0, R0), PULL(0, R0, R0), TEST}}},
    {.name = "asleep: a writer waits for one at the check with another call", .sleeps = true, .wrong = true, .ranks = 2, .member = {R01}, .op = {
        {PULL_AS(1, 0, NOBODY, R1), PUT(A), TEST},
        {BEGIN_AS(2, 0, R0, NOBODY), TEST}}},
    {.name = "asleep: a writer waits for one that waits for a third at the check", .sleeps = true, .wrong = true, .ranks = 3, .member = {ALL3}, .op = {
        {PULL(0, NOBODY, R1), PUT(A), TEST},
        {BEGIN(0, R02, NOBODY), TEST},
        {TEST}}},
    {.name = "asleep: a begun call goes on at the check", .sleeps = true, .ranks = 2, .member = {R01}, .op = {
        {BEGIN(0, R1, NOBODY), TEST},
        {PULL(0, NOBODY, R0), PUT(A), TEST}}},
};
const int model_program_count = (int)(sizeof model_programs / sizeof *model_programs);
/* clang-format on */

const model_program *find_program(const char *name)
{
    for (int i = 0; i < model_program_count; i++)
        if (strcmp(model_programs[i].name, name) == 0)
            return &model_programs[i];
    return NULL;
}
