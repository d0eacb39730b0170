/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of Fourier transforms: see misuse.h. And what their refusals say. */
#include "misuse.h"
#include "sherd/ops.h"
#include "sherd/ops_fft.h"
#include "sherd/values.h"

static const int rows[] = {0, 0, 0}, twice[] = {1, -1}, none[] = {2};

typedef struct things {
    sherd_tensor *pairs;        /* [4,6,2], sharded */
    sherd_tensor *half;         /* the same, bf16 */
    sherd_tensor *triples;      /* [4,3] */
    sherd_tensor *empty;        /* [4,0,2] */
    sherd_tensor *pair, *whole; /* [2], and i32 */
    sherd_tensor *one;          /* no dims */
    sherd_tensor *failed;
} things;

static sherd_tensor *ones(sherd_world *world, sherd_dtype dtype, int ndim, int64_t a, int64_t b,
                          int64_t c)
{
    return sherd_constant(world, dtype, (int64_t[]){a, b, c}, ndim, 1);
}

static things make(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), shape[] = {4, 6, 2};
    const sherd_placement s = sherd_shard(0);
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    things t = {.triples = ones(world, SHERD_F32, 2, 4, 3, 0),
                .empty = ones(world, SHERD_F32, 3, 4, 0, 2),
                .pair = ones(world, SHERD_F32, 1, 2, 0, 0),
                .whole = ones(world, SHERD_I32, 3, 4, 6, 2),
                .one = ones(world, SHERD_F32, 0, 0, 0, 0)};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, 3, shape, &s, NULL));
    t.pairs = sherd_constant_on(layout, SHERD_F32, 1);
    t.half = sherd_constant_on(layout, SHERD_BF16, 1);
    CHECK_OK(
        sherd_world_check(world)); /* what is raised next must not stop a rank that is still here */
    t.failed = sherd_add(t.pairs, NULL);
    CHECK(sherd_tensor_failed(t.failed));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    return t;
}

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    const float *y =
        sherd_tensor_read(sherd_full(sherd_fft(make(world).pairs, NULL, 0, SHERD_FFT_BACKWARD)));
    CHECK(y && y[0] == 24 && y[1] == 24);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

#define OF_ONE(a)                                                                                 \
    {                                                                                             \
        sherd_fft(a, NULL, 0, SHERD_FFT_ORTHO), sherd_ifft(a, NULL, 0, SHERD_FFT_ORTHO),          \
            sherd_rfft(a, NULL, 0, SHERD_FFT_ORTHO), sherd_irfft(a, NULL, 0, 0, SHERD_FFT_ORTHO), \
            sherd_complex_mul(a, a), sherd_complex_einsum("ij,ij->ij", a, a),                     \
            sherd_fft_resize(a, 0, 2),                                                            \
    }

MISUSE(a_transform_of_nothing_is_nothing)
{
    sherd_tensor *const of_nothing[] = OF_ONE(NULL);

    for (int i = 0; i < LEN(of_nothing); i++)
        ANSWERS(of_nothing[i] == NULL);
}

MISUSE(a_failed_operand_is_passed_on)
{
    things t = make(m->world);
    sherd_tensor *const of_failed[] = OF_ONE(t.failed);

    for (int i = 0; i < LEN(of_failed); i++)
        ANSWERS(of_failed[i] && sherd_tensor_failed(of_failed[i]));
    /* Whether such a use is told anew is not this test's to say. */
    sherd_world_check(m->world);
}

MISUSE(an_operand_must_be_complex)
{
    things t = make(m->world);
    sherd_tensor *a = t.pairs;

    FAILS(SHERD_EINVAL, sherd_fft(BAD(t.triples, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_ifft(BAD(t.half, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_rfft(BAD(t.whole, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_rfft(BAD(t.half, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_rfft(BAD(t.one, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_irfft(BAD(t.triples, a), NULL, 0, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_irfft(BAD(t.pair, a), NULL, 0, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_complex_mul(BAD(t.triples, a), a));
    FAILS(SHERD_EINVAL, sherd_complex_mul(a, BAD(t.one, a)));
    FAILS(SHERD_EINVAL, sherd_complex_mul(BAD(t.half, a), BAD(t.half, a)));
    FAILS(SHERD_EINVAL, sherd_complex_mul(a, NUL(a)));
    FAILS(SHERD_EINVAL, sherd_complex_einsum("ij,ij->ij", a, NUL(a)));
    FAILS(SHERD_EINVAL, sherd_complex_einsum("ij,ij->ij", BAD(t.half, a), BAD(t.half, a)));
    FAILS(SHERD_EINVAL, sherd_complex_einsum("ij,ij->ij", a, BAD(t.triples, a)));
    FAILS(SHERD_EINVAL, sherd_complex_einsum(BAD("ij,ij", "ij,ij->ij"), a, a));
    FAILS(SHERD_EINVAL, sherd_complex_einsum(BAD("ij,jk,kl->il", "ij,ij->ij"), a, a));
    FAILS(SHERD_EINVAL, sherd_complex_einsum(BAD("ij,jkl->il", "ij,ij->ij"), a, a));
    FAILS(SHERD_EINVAL, sherd_complex_einsum(NUL("ij,ij->ij"), a, a));
    FAILS(SHERD_EINVAL, sherd_fft_resize(BAD(t.half, a), 0, 3));
    FAILS(SHERD_EINVAL, sherd_fft_resize(BAD(t.one, a), 0, 3));
    FAILS(SHERD_EINVAL, sherd_fft_resize(a, BAD(2, 1), 3));
    FAILS(SHERD_EINVAL, sherd_fft_resize(a, 0, BAD(0, 3)));
}

MISUSE(dims_must_be_there)
{
    things t = make(m->world);
    sherd_tensor *a = t.pairs;

    FAILS(SHERD_EINVAL, sherd_fft(a, BAD(none, rows), 1, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_fft(a, NUL(rows), 1, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_ifft(a, rows, BAD(-1, 1), SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_ifft(a, rows, BAD(3, 1), SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_irfft(a, BAD(twice, rows), BAD(2, 1), 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_rfft(a, rows, BAD(INT32_MAX, 1), SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_fft(BAD(t.empty, a), NULL, 0, SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_rfft(BAD(t.empty, a), NULL, 0, SHERD_FFT_ORTHO));
}

MISUSE(numbers_must_fit)
{
    sherd_tensor *a = make(m->world).pairs;

    FAILS(SHERD_EINVAL, sherd_fft(a, NULL, 0, BAD((sherd_fft_norm)3, SHERD_FFT_ORTHO)));
    FAILS(SHERD_EINVAL, sherd_ifft(a, NULL, 0, BAD((sherd_fft_norm)-1, SHERD_FFT_ORTHO)));
    FAILS(SHERD_EINVAL, sherd_rfft(a, NULL, 0, BAD((sherd_fft_norm)77, SHERD_FFT_ORTHO)));
    FAILS(SHERD_EINVAL, sherd_irfft(a, NULL, 0, 0, BAD((sherd_fft_norm)3, SHERD_FFT_ORTHO)));
    FAILS(SHERD_EINVAL, sherd_irfft(a, NULL, 0, BAD(-1, 10), SHERD_FFT_ORTHO));
    FAILS(SHERD_EINVAL, sherd_irfft(a, NULL, 0, BAD(INT64_MIN, 10), SHERD_FFT_ORTHO));
}

/* ---- what refusals say ----------------------------------------------------------------------- */

static void refused(sherd_world *world, sherd_tensor *y, const char *text)
{
    CHECK(sherd_tensor_failed(y));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static void refusals_say_what_is_wrong(sherd_world *world)
{
    things t = make(world);

    refused(
        world, sherd_fft(t.triples, NULL, 0, SHERD_FFT_ORTHO),
        "sherd_fft: the last dim of a complex tensor has 2 elements, the real and the imaginary "
        "part: a is f32[4,3]");
    refused(world, sherd_rfft(t.empty, NULL, 0, SHERD_FFT_ORTHO),
            "sherd_rfft: dim 1 has no elements to transform: a is f32[4,0,2]");
    refused(world, sherd_fft(t.pairs, none, 1, SHERD_FFT_ORTHO), "sherd_fft: there is no dim 2");
    refused(world, sherd_rfft(t.one, NULL, 0, SHERD_FFT_ORTHO),
            "sherd_rfft: it has no dim to transform");
    refused(world, sherd_ifft(t.pairs, NULL, 0, (sherd_fft_norm)3),
            "sherd_ifft: there is no norm 3");
    refused(world, sherd_irfft(t.pairs, NULL, 0, -2, SHERD_FFT_ORTHO), "sherd_irfft: a size of -2");
    refused(world, sherd_complex_mul(t.pairs, t.triples),
            "sherd_complex_mul: the last dim of b must have 2 elements, the real and the imaginary "
            "part");
}

static const check_test tests[] = {
    {TEST(a_transform_of_nothing_is_nothing), {1, 2}},
    {TEST(a_failed_operand_is_passed_on), {1, 2}},
    {TEST(an_operand_must_be_complex), {1, 2, 3}},
    {TEST(dims_must_be_there), {1, 2, 3}},
    {TEST(numbers_must_fit), {1, 2, 3}},
    {TEST(refusals_say_what_is_wrong), {1, 2}},
};
CHECK_MAIN(tests)
