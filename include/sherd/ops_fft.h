/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms over sharded dims. What ops.h says of all operators holds here too.
 *
 * Complex numbers. There is no complex dtype: a complex tensor is f32 or f64 with a last dim of
 * size 2, the real and the imaginary part (PyTorch's view_as_real). Dims of a complex tensor are
 * counted without that pair: -1 is the last dim before it. f32 and f64 only; under autocast 16 bits
 * are cast to f32.
 *
 * Values are those of NumPy and torch.fft. Forward, y[k] is the sum over j of a[j] e^(-2 pi i j k /
 * n) for each dim; inverse, with e^(+2 pi i j k / n). Every size from 1 on is fast: one with a
 * large prime factor takes a few times as long.
 *
 * Layouts. A transform over several dims is a chain of transforms along one dim each, which needs
 * that dim whole; all other dims may be sharded in any way, and a pending sum stays pending. Dims
 * that are whole are transformed first. The shards of a sharded one then move to a dim that is done
 * (an all-to-all), or it is gathered, whichever is cheaper: of a 3-d grid, slabs [x(a), y, z] take
 * one all-to-all, pencils [x(a), y(b), z] two. The result stays as the last of these moves has left
 * it; a transform back from there usually takes the same moves backwards. sherd_redistribute
 * moves it elsewhere.
 *
 * What else torch.fft has is there under another name: fftshift is sherd_roll by half the size of a
 * dim; frequencies are sherd_arange, those from n / 2 on minus n; the conjugate is sherd_mul by [1,
 * -1].
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

/* What transforms over n elements are divided by. */
typedef enum sherd_fft_norm {
    SHERD_FFT_BACKWARD = 0, /* inverse ones by n */
    SHERD_FFT_ORTHO,        /* both by sqrt(n) */
    SHERD_FFT_FORWARD       /* forward ones by n */
} sherd_fft_norm;

/**
 * The Fourier transform of a complex tensor over some dims.
 *
 * @collective only if one of the dims is sharded
 * @shapes     a and the result: [..., 2]; dims: see above
 * @numerics   errors grow as log n; for one order of the dims the same bits under every layout
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
 * The Fourier transform of a real tensor over some dims, without the half that follows from the
 * other: what sherd_fft gives at 0 .. n / 2 of the last of `dims`. That dim is transformed first.
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
 * The inverse of sherd_rfft. The last of `dims` is transformed last, and has the size `last` in the
 * result; 0 = 2 (m - 1), where m is its size in `a`. If m is not last / 2 + 1, what is too much is
 * left out, and what is missing is 0. Imaginary parts that must be 0, of the first element and of
 * an even size the last, are not looked at.
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
 * The product of complex tensors, element by element. Shapes broadcast, except for the pair. One
 * operand may be pending.
 *
 * @collective only if operands must be moved to a common layout
 * @shapes     a, b and the result: [..., 2]
 * @numerics   each part is the sum of two products, rounded as such
 * @owns       scope
 * @errors     see ops.h; EINVAL a last dim that is not 2, bf16 and f16
 */
SHERD_API sherd_tensor *sherd_complex_mul(sherd_tensor *a, sherd_tensor *b);

SHERD_END

#endif
