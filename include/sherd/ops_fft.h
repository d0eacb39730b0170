/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms; dims may be sharded. "See ops.h" means what the head of ops.h says of all
 * operators.
 *
 * Complex numbers. There is no complex dtype: a complex tensor is an f32 or f64 tensor with a last
 * dim of size 2, the real and the imaginary part (PyTorch's view_as_real). Dim numbers do not count
 * that pair: -1 is the last dim before it. Other dtypes are refused; under autocast 16-bit operands
 * are cast to f32.
 *
 * Values are those of NumPy and torch.fft. Forward, y[k] is the sum over j of a[j] e^(-2 pi i j k /
 * n) for each dim; inverse, with e^(+2 pi i j k / n). All sizes are fast; one with a large prime
 * factor takes a few times as long as others.
 *
 * Layouts. A transform over several dims is a chain of transforms along one dim each. Each needs
 * its dim whole; the other dims may be sharded in any way, and a pending sum stays pending. Dims
 * that are not sharded are transformed first. For a sharded dim, its shards then move to a dim that
 * is done (an all-to-all), or it is gathered, whichever is cheaper. So of a 3-d grid, slabs [x(a),
 * y, z] take one all-to-all, and pencils [x(a), y(b), z] two. The result stays in the layout that
 * these moves have left; transforming back from there usually takes the same moves in reverse. To
 * have it elsewhere, use sherd_redistribute.
 *
 *     const int space[] = {0, 1};
 *     sherd_tensor *hat = sherd_rfft(a, space, 2, SHERD_FFT_BACKWARD); // [n, m] -> [n, m/2 + 1, 2]
 *     a = sherd_irfft(hat, space, 2, 0, SHERD_FFT_BACKWARD);           // back; m is even
 *
 * Where only the lowest frequencies are kept, as in Fourier neural operators, transform dim by dim
 * and cut in between: then only what is kept is moved. Of a field [n, c, x(a), y], by weights w
 * [c, out, 32, 16(a), 2] that mix its channels for 32 by 16 frequencies:
 *
 *     const int along = 2, across = 3; // y where it lies, then x for 16 frequencies only
 *     const sherd_fft_norm norm = SHERD_FFT_BACKWARD;
 *     sherd_tensor *low = sherd_narrow(sherd_rfft(a, &across, 1, norm), 3, 0, 16);
 *     low = sherd_redistribute_to(low, "S(3)", NULL); // an all-to-all: of [n, c, x, 16(a), 2]
 *     low = sherd_fft_resize(sherd_fft(low, &along, 1, norm), 2, 32); // -16 to 15
 *     low = sherd_complex_einsum("ncxy,coxy->noxy", low, w);
 *     low = sherd_ifft(sherd_fft_resize(low, 2, 512), &along, 1, norm);
 *     y = sherd_irfft(sherd_redistribute_to(low, "S(2)", NULL), &across, 1, 512, norm);
 *
 * No rank has a whole spectrum, in backward neither. (tests/test_fields_modes.c is this layer.)
 *
 * The rest of torch.fft has other names here: fftshift is sherd_roll by half the size of a dim;
 * fftfreq is sherd_arange, with n subtracted from the numbers from n / 2 on; the conjugate is
 * sherd_mul by [1, -1].
 *
 * @shapes for all: dims[count], of `a`, count 0 = all dims.
 * @errors for all: as in ops.h; EINVAL no such dim, a dim named twice, dims NULL with count > 0, a
 * complex operand whose last dim is not 2, a dim of size 0 to transform, an unknown norm, bf16 and
 * f16.
 */
#ifndef SHERD_OPS_FFT_H
#define SHERD_OPS_FFT_H

#include "ops_shape.h"

SHERD_BEGIN

/* Which transforms are divided, and by what, for n elements in all transformed dims. */
typedef enum sherd_fft_norm {
    SHERD_FFT_BACKWARD = 0, /* inverse transforms, by n */
    SHERD_FFT_ORTHO,        /* both, by sqrt(n) */
    SHERD_FFT_FORWARD       /* forward transforms, by n */
} sherd_fft_norm;

/**
 * The Fourier transform of a complex tensor over some dims.
 *
 * @collective only if one of the dims is sharded
 * @shapes     a and the result: [..., 2]; dims: see above
 * @numerics   errors grow as log n. The same bits under every layout for which the dims are
 *             transformed in the same order
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_fft(sherd_tensor *a, const int *dims, int count, sherd_fft_norm norm);

/**
 * The inverse of sherd_fft.
 *
 * @collective as there   @shapes as there   @numerics as there   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_ifft(sherd_tensor *a, const int *dims, int count,
                                   sherd_fft_norm norm);

/**
 * The Fourier transform of a real tensor over some dims. Only the half that determines the rest is
 * computed: the frequencies 0 .. n / 2 in the last of `dims`, which is transformed first.
 *
 * @collective as sherd_fft
 * @shapes     a: real, any; the result: [..., n / 2 + 1, ..., 2], where n is the size of the last
 *             of `dims`
 * @numerics   as sherd_fft
 * @owns       scope
 * @errors     see above; EINVAL the result would have too many dims
 */
SHERD_API sherd_tensor *sherd_rfft(sherd_tensor *a, const int *dims, int count,
                                   sherd_fft_norm norm);

/**
 * The inverse of sherd_rfft. The last of `dims` is transformed last, and gets the size `last`; 0
 * means 2 (m - 1), where m is its size in `a`. If m is more than last / 2 + 1, the elements beyond
 * are ignored; if it is less, the missing ones count as 0. The imaginary parts of the first element
 * and, if `last` is even, of element last / 2 are ignored, because they must be 0 for a real
 * result.
 *
 * @collective as sherd_fft
 * @shapes     a: [..., m, ..., 2]; the result: [..., last, ...]
 * @numerics   as sherd_fft
 * @owns       scope
 * @errors     see above; EINVAL `last` is negative, or the size would be 0
 */
SHERD_API sherd_tensor *sherd_irfft(sherd_tensor *a, const int *dims, int count, int64_t last,
                                    sherd_fft_norm norm);

/**
 * The product of complex tensors, element by element. Shapes broadcast, except the last dim. One
 * operand may be a pending sum; the result is pending then.
 *
 * @collective only if operands must be moved to a common layout
 * @shapes     a, b and the result: [..., 2]
 * @numerics   each part is the sum of two products, rounded as such
 * @owns       scope
 * @errors     see ops.h; EINVAL a last dim that is not 2, bf16 and f16
 */
SHERD_API sherd_tensor *sherd_complex_mul(sherd_tensor *a, sherd_tensor *b);

/**
 * sherd_einsum of two complex tensors: a text such as "bixy,ioxy->boxy", with "->", whose letters
 * are the dims before the pairs.
 *
 * @collective as sherd_einsum
 * @shapes     text: at most 59 bytes; a, b and the result: [..., 2]
 * @numerics   as sherd_einsum of real numbers, with a sum over two more
 * @owns       scope
 * @errors     see sherd_einsum; EINVAL a last dim that is not 2, bf16 and f16, a text without two
 *             terms and "->", or that leaves less than two small letters
 */
SHERD_API sherd_tensor *sherd_complex_einsum(const char *text, sherd_tensor *a, sherd_tensor *b);

/**
 * The same frequencies in a dim of size n, in the order of sherd_fft: of m frequencies that both
 * sizes have, 0 .. (m - 1) / 2 at its beginning and -m / 2 .. -1 at its end (rounded towards 0);
 * what is missing between is 0, what is too much is left out. Keeps low frequencies, or pads
 * them; its gradient is the other way. (The dim that sherd_rfft has halved has no negative ones:
 * sherd_narrow keeps its first, sherd_irfft pads.)
 *
 * @collective only if the dim is sharded: what is kept is joined as by sherd_cat
 * @shapes     a and the result: [..., 2]; `dim` does not count the pair
 * @owns       scope; `a` itself if it has size n
 * @errors     see above; EINVAL n < 1
 */
SHERD_API sherd_tensor *sherd_fft_resize(sherd_tensor *a, int dim, int64_t n);

SHERD_END

#endif
