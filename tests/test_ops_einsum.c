/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products, and products of matrices with vectors and with leading dims that broadcast:
 * against a plain loop over all indices, under every layout, with gradients against central
 * differences; and what is refused.
 */
#include "ops_oracles.h"
#include "tensors.h"

#define EINSUM(name, text, count)                      \
    static sherd_tensor *name(sherd_tensor *const *in) \
    {                                                  \
        return sherd_einsum(text, in, count);          \
    }

EINSUM(rows, "ij,jk->ik", 2)
EINSUM(turned, "ij,kj->ki", 2)
EINSUM(batches, "bij,bjk->bik", 2)
EINSUM(batch_last, "ijb,kbj->bki", 2)
EINSUM(outer, "i,jk->jik", 2)
EINSUM(inner, "ij,ij->", 2)
EINSUM(alone, "ij,jk->k", 2)
EINSUM(chain, "ij,jk,kl->il", 3)
EINSUM(attention, "bshw,bthw->bhst", 2)
EINSUM(dots, "...ij,...jk->...ik", 2)
EINSUM(stretched, "...i,ij->...j", 2)
EINSUM(sums, "ijk->k", 1)
EINSUM(permuted, "ijk->kij", 1)
EINSUM(implicit, "ba,cb", 2)
EINSUM(diagonal, "ii->i", 1)
EINSUM(trace, "ii", 1)
EINSUM(diagonals, "iji->ji", 1)
EINSUM(thrice, "iii->i", 1)
EINSUM(behind_dots, "i...i->i...", 1)
EINSUM(by_diagonal, "ij,jj->ij", 2)

static sherd_tensor *matmul(sherd_tensor *const *in)
{
    return sherd_matmul(in[0], in[1]);
}

static const op_case products[] = {
    {"rows", rows, 2, {2, 2}, .shape = {{5, 3}, {3, 4}}},
    {"turned", turned, 2, {2, 2}, .shape = {{5, 3}, {4, 3}}},
    {"batches", batches, 2, {3, 3}, .shape = {{3, 2, 4}, {3, 4, 2}}},
    {"batch last", batch_last, 2, {3, 3}, .shape = {{2, 4, 3}, {5, 3, 4}}},
    {"outer", outer, 2, {1, 2}, .shape = {{3}, {4, 2}}},
    {"inner", inner, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
    {"alone", alone, 2, {2, 2}, .shape = {{5, 3}, {3, 4}}},
    {"chain", chain, 3, {2, 2, 2}, .shape = {{5, 2}, {2, 4}, {4, 3}}},
    {"attention", attention, 2, {4, 4}, .shape = {{2, 3, 2, 2}, {2, 4, 2, 2}}},
    {"dots", dots, 2, {3, 3}, .shape = {{3, 2, 4}, {1, 4, 2}}},
    {"stretched", stretched, 2, {3, 2}, .shape = {{2, 3, 4}, {4, 5}}},
    {"sums", sums, 1, {3}, .shape = {{3, 2, 4}}},
    {"permuted", permuted, 1, {3}, .shape = {{3, 2, 4}}},
    {"implicit", implicit, 2, {2, 2}, .shape = {{3, 4}, {5, 3}}},
    {"diagonal", diagonal, 1, {2}, .shape = {{5, 5}}},
    {"trace", trace, 1, {2}, .shape = {{5, 5}}},
    {"diagonals", diagonals, 1, {3}, .shape = {{3, 4, 3}}},
    {"thrice", thrice, 1, {3}, .shape = {{4, 4, 4}}},
    {"behind dots", behind_dots, 1, {4}, .shape = {{3, 2, 2, 3}}},
    {"by diagonal", by_diagonal, 2, {2, 2}, .shape = {{5, 3}, {3, 3}}},
    {"no inner", rows, 2, {2, 2}, .shape = {{5, 0}, {0, 4}}},
    {"no rows", rows, 2, {2, 2}, .shape = {{0, 3}, {3, 4}}},
    {"vectors", matmul, 2, {1, 1}, .shape = {{5}, {5}}},
    {"vector by matrix", matmul, 2, {1, 2}, .shape = {{4}, {4, 3}}},
    {"vector by matrices", matmul, 2, {1, 3}, .shape = {{4}, {2, 4, 3}}},
    {"matrices by vector", matmul, 2, {3, 1}, .shape = {{2, 3, 4}, {4}}},
    {"matmul broadcast", matmul, 2, {4, 3}, .shape = {{2, 1, 3, 2}, {3, 2, 2}}},
    {"matmul matrix by batches", matmul, 2, {2, 3}, .shape = {{3, 4}, {2, 4, 2}}},
};

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, products, LEN(products), 300 / check_stride(3));
}

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, products, LEN(products), 60 / check_stride(3));
}

/* ---- against a loop over all indices --------------------------------------------------------- */

static double element(const op_case *c, int i, const char *term, const int64_t *index)
{
    int64_t at = 0;

    for (int d = 0; d < c->ndim[i]; d++)
        at = at * c->shape[i][d] + index[(int)term[d]];
    return value_at(i, at);
}

/* Every product of two terms of `text`, added where its indices say. */
static void add_up(const op_case *c, const char *a, const char *b, const char *y, double *out)
{
    int64_t index[128] = {0}, size[128] = {0};
    char letters[16] = "";
    int n = 0;

    for (int i = 0; i < 2; i++)
        for (int d = 0; d < c->ndim[i]; d++) {
            char letter = (i ? b : a)[d];
            if (!strchr(letters, letter) || n == 0) {
                letters[n++] = letter;
                letters[n] = '\0';
            }
            size[(int)letter] = c->shape[i][d];
        }
    for (;;) {
        int64_t at = 0;
        for (const char *l = y; *l; l++)
            at = at * size[(int)*l] + index[(int)*l];
        out[at] += element(c, 0, a, index) * element(c, 1, b, index);
        int d = n - 1;
        while (d >= 0 && ++index[(int)letters[d]] == size[(int)letters[d]])
            index[(int)letters[d--]] = 0;
        if (d < 0)
            return;
    }
}

static void equals_a_loop_over_all_indices(sherd_world *world)
{
    static const struct {
        const char *text, *a, *b, *y;
        int ndim[2];
        int64_t shape[2][MOST_DIMS];
    } loops[] = {
        {"ij,jk->ik", "ij", "jk", "ik", {2, 2}, {{5, 3}, {3, 4}}},
        {"ij,kj->ki", "ij", "kj", "ki", {2, 2}, {{5, 3}, {4, 3}}},
        {"ijb,kbj->bki", "ijb", "kbj", "bki", {3, 3}, {{2, 4, 3}, {5, 3, 4}}},
        {"i,jk->jik", "i", "jk", "jik", {1, 2}, {{3}, {4, 2}}},
        {"ij,ij->ji", "ij", "ij", "ji", {2, 2}, {{3, 4}, {3, 4}}},
        {"aij,jb->biaj", "aij", "jb", "biaj", {3, 2}, {{2, 3, 4}, {4, 2}}},
        {"ij,jk->k", "ij", "jk", "k", {2, 2}, {{5, 3}, {3, 4}}},
        {"ba,cb", "ba", "cb", "ac", {2, 2}, {{3, 4}, {5, 3}}},
        {"abcd,bd->ca", "abcd", "bd", "ca", {4, 2}, {{2, 3, 2, 4}, {3, 4}}},
        {"ii,ij->ji", "ii", "ij", "ji", {2, 2}, {{3, 3}, {3, 4}}},
        {"Bj,jA->AB", "Bj", "jA", "AB", {2, 2}, {{5, 3}, {3, 4}}},
        {"bA,cb", "bA", "cb", "Ac", {2, 2}, {{3, 4}, {5, 3}}},
        {"aA,AB", "aA", "AB", "Ba", {2, 2}, {{3, 4}, {4, 2}}},
        {"XaXb,ccb->ca", "XaXb", "ccb", "ca", {4, 3}, {{3, 2, 3, 4}, {5, 5, 4}}},
        {"iaib,ccb->ca", "iaib", "ccb", "ca", {4, 3}, {{3, 2, 3, 4}, {5, 5, 4}}},
    };

    for (int i = 0; i < LEN(loops); i++) {
        op_case c = {.operands = 2};
        double want[MOST_ELEMENTS] = {0};
        sherd_tensor *in[2];
        memcpy(c.ndim, loops[i].ndim, sizeof loops[i].ndim);
        memcpy(c.shape, loops[i].shape, sizeof loops[i].shape);
        for (int j = 0; j < 2; j++)
            in[j] = plain_operand(world, &c, j, NULL);
        add_up(&c, loops[i].a, loops[i].b, loops[i].y, want);
        sherd_tensor *y = sherd_einsum(loops[i].text, in, 2);
        if (!CHECK(distance(y, want, sherd_tensor_count(y)) < 1e-12))
            fprintf(stderr, "  %s\n", loops[i].text);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused(sherd_world *world)
{
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {NULL, "sherd_einsum: the index string is NULL"},
        {"ij,jk->ik,ij,jk->ik,ij,jk->ik,ij,jk->ik,ij,jk->ik,ij,jk->ik,ij,jk->ik,",
         "sherd_einsum: the index string is longer than 63 bytes"},
        {"ij->ik", "\"ij->ik\": there must be a term for each operand"},
        {"ij,jk->ii", "a letter may be only once in a result"},
        {"...ij...,jk->ik", "a term may have only one ..."},
        {"ii,jk->ik", "operand 0 has two sizes of i"},
        {"i1,jk->ik", "a term may have letters and ... only"},
        {"i_,jk->ik", "a term may have letters and ... only"},
        {"QQ,jk->Qk", "operand 0 has two sizes of Q"},
        {"ij,jk->iz", "the result has a letter that no operand has"},
        {"ij,jk->i,k", "there is only one result"},
        {"ij,jk-ik", "a - must be an ->"},
        {"...j,jk->k", "the result must have ... too"},
        {"ijl,jk->ik", "operand 0 must have 3 dims"},
        {"ij,ji->", "dim 1 of a is 3, dim 0 of b is 4: they must be equal"},
    };
    sherd_tensor *in[] = {sherd_constant(world, SHERD_F32, (int64_t[]){5, 3}, 2, 1),
                          sherd_constant(world, SHERD_F32, (int64_t[]){4, 5}, 2, 1)};

    for (int i = 0; i < LEN(wrong); i++) {
        CHECK(sherd_tensor_failed(sherd_einsum(wrong[i].text, in, 2)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), wrong[i].error) != NULL))
            fprintf(stderr, "  \"%s\": %s\n", wrong[i].text ? wrong[i].text : "NULL",
                    sherd_world_error(world));
    }
    CHECK(sherd_einsum("i", NULL, 1) == NULL);
    sherd_tensor *four[] = {in[0], in[0], in[1], in[1]};
    sherd_einsum("Aabcdef,ghijklm,nopqrst,uvwxyz->A", four, 4);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it has more than 26 letters") != NULL);
}

/* Three matrices of which two are thin: the thin ones first. A wrong order would take a hundred
 * times longer. */
static void the_order_multiplies_least(sherd_world *world)
{
    sherd_tensor *in[] = {sherd_constant(world, SHERD_F32, (int64_t[]){2000, 1}, 2, 1),
                          sherd_constant(world, SHERD_F32, (int64_t[]){1, 2000}, 2, 1),
                          sherd_constant(world, SHERD_F32, (int64_t[]){2000, 1}, 2, 1)};

    sherd_world_memory_reset(world);
    int64_t before = sherd_world_memory(world).peak_bytes;
    sherd_tensor *y = sherd_einsum("ij,jk,kl->il", in, 3);
    CHECK_NEAR(((const float *)sherd_tensor_read(y))[0], 2000, 0);
    CHECK(sherd_world_memory(world).peak_bytes - before < 100000); /* not 2000 x 2000 */
}

/* Dims in another order are a view. */
static void what_sums_nothing_copies_nothing(sherd_world *world)
{
    static const char *const texts[] = {"ij...->...ji", "ijk->kij", "...ab->ab...", "ijk->ijk"};
    static const int orders[][3] = {{2, 1, 0}, {2, 0, 1}, {1, 2, 0}, {0, 1, 2}};
    const int64_t shape[] = {2, 3, 4};

    for (int i = 0; i < LEN(texts); i++) {
        sherd_tensor *x = indices_plain(world, SHERD_F32, 3, shape);
        sherd_tensor *y = sherd_einsum(texts[i], &x, 1), *want = sherd_permute(x, orders[i], 3);
        CHECK(y->storage == x->storage);
        CHECK(memcmp(sherd_tensor_shape(y), sherd_tensor_shape(want), 3 * sizeof *shape) == 0);
        CHECK(memcmp(sherd_tensor_read(y), sherd_tensor_read(want), 24 * sizeof(float)) == 0);
    }
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},  {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(equals_a_loop_over_all_indices), {1}}, {TEST(what_does_not_fit_is_refused), {1}},
    {TEST(the_order_multiplies_least), {1}},     {TEST(what_sums_nothing_copies_nothing), {1}},
};
CHECK_MAIN(tests)
