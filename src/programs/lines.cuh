/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running products, extremes, logarithms of sums, and recurrences, along lines. A thread has a line
 * and takes its elements in order, in f64 (integers modulo a power of two), as the CPU does. If
 * lines are columns, neighbouring threads read neighbouring elements anyway. If they are rows, a
 * block has LINES of them, and copies a tile of each at a time to shared memory and back, so that
 * global memory is accessed in order.
 */

enum { LINES = LINE_THREADS, TILE = 32, AT_ONCE = 8 };

/* The type that elements are multiplied in. */
template <class E> struct product {
    typedef double type;
};
template <> struct product<i32> {
    typedef uint64_t type;
};
template <> struct product<i64> {
    typedef uint64_t type;
};
template <> struct product<i8> {
    typedef uint64_t type;
};
template <> struct product<u8> {
    typedef uint64_t type;
};

/*
 * A law is a struct like these: its `line` holds the state of a line, and line.next takes the next
 * element x (and that of the second operand, if TWO) and returns the result there; if FINDS, it
 * sets *where to the place of the element that was found.
 */
struct products {
    static constexpr bool TWO = false, FINDS = false;
    template <class E> struct line {
        typename product<E>::type total;
        __device__ inline E next(const line_args &, E x, E, int64_t at, int32_t *)
        {
            typedef typename product<E>::type type;
            total = at == 0 ? (type)get(x) : total * (type)get(x);
            return put<E>((typename number<E>::sum)total);
        }
    };
};

struct recurrences {
    static constexpr bool TWO = true, FINDS = false;
    template <class E> struct line {
        double total, factor; /* of the place before */
        __device__ inline E next(const line_args &a, E x, E b, int64_t at, int32_t *)
        {
            double own = get(x), add = get(b);
            total = at == 0 ? add : add + (a.behind ? factor : own) * total;
            factor = own;
            return put<E>((typename number<E>::sum)total);
        }
    };
};

struct log_sums {
    static constexpr bool TWO = false, FINDS = false;
    template <class E> struct line {
        double total;
        __device__ inline E next(const line_args &, E x, E, int64_t at, int32_t *)
        {
            double y = get(x), more = total > y ? total : y, less = total > y ? y : total;
            if (at == 0)
                total = y;
            else if (y != y || total != total)
                total += y;
            else
                total = more - more != 0 ? more : more + log1p(exp(less - more));
            return put<E>((typename number<E>::sum)total);
        }
    };
};

/* The last of equal ones, and the last NaN. */
template <bool LEAST> struct extremes {
    static constexpr bool TWO = false, FINDS = true;
    template <class E> struct line {
        E best;
        int32_t place;
        __device__ inline E next(const line_args &, E x, E, int64_t at, int32_t *where)
        {
            typename number<E>::sum own = get(x), top = get(best);
            bool beats = LEAST ? own <= top : own >= top;
            if (at == 0 || own != own || (top == top && beats)) {
                best = x;
                place = (int32_t)at;
            }
            *where = place;
            return best;
        }
    };
};
typedef extremes<false> largest;
typedef extremes<true> least;

__device__ inline int64_t place_along(const line_args &a, int64_t i)
{
    return a.reverse ? a.n - 1 - i : i;
}

template <class K, class E> __device__ void line_columns(const line_columns_args &a)
{
    for (int64_t i = global_thread(); i < a.outer * a.inner; i += all_threads()) {
        int64_t first = i / a.inner * a.n * a.inner + i % a.inner;
        typename K::template line<E> line = {};
        for (int64_t m = 0; m < a.n; m += AT_ONCE) {
            E x[AT_ONCE], y[AT_ONCE] = {};
            UNROLL
            for (int k = 0; k < AT_ONCE; k++) {
                int64_t at = m + k < a.n ? m + k : a.n - 1;
                at = first + place_along(a, at) * a.inner;
                x[k] = ((const E *)a.src)[at];
                if (K::TWO)
                    y[k] = ((const E *)a.more)[at];
            }
            UNROLL
            for (int k = 0; k < AT_ONCE; k++) {
                int64_t at = first + place_along(a, m + k) * a.inner;
                int32_t where = 0;
                if (m + k >= a.n)
                    break;
                ((E *)a.dst)[at] = line.next(a, x[k], y[k], m + k, &where);
                if (K::FINDS)
                    a.where[at] = where;
            }
        }
    }
}

/*
 * A tile of the block's rows. Rows have one element more than a tile, so that a column lies in
 * different banks.
 */
template <class K, class E> struct line_tiles {
    E x[LINES][TILE + 1], y[K::TWO ? LINES : 1][TILE + 1];
    int32_t where[K::FINDS ? LINES : 1][TILE + 1];
};

template <class K, class E> __device__ void line_rows(const line_rows_args &a)
{
    __shared__ line_tiles<K, E> tile;
    int64_t row = (int64_t)blockIdx.x * LINES, left = a.outer - row;
    int rows = left < LINES ? (int)left : LINES, own = threadIdx.x;
    typename K::template line<E> line = {};

    for (int64_t m = 0; m < a.n; m += TILE) {
        int here = a.n - m < TILE ? (int)(a.n - m) : TILE;
        for (int i = own; i < rows * TILE; i += LINES) {
            int r = i / TILE, c = i % TILE;
            int64_t at = (row + r) * a.n + place_along(a, m + c);
            if (c < here)
                tile.x[r][c] = ((const E *)a.src)[at];
            if (K::TWO && c < here)
                tile.y[r][c] = ((const E *)a.more)[at];
        }
        __syncthreads();
        for (int c = 0; c < here && own < rows; c++)
            tile.x[own][c] = line.next(a, tile.x[own][c], tile.y[K::TWO ? own : 0][K::TWO ? c : 0],
                                       m + c, &tile.where[K::FINDS ? own : 0][K::FINDS ? c : 0]);
        __syncthreads();
        for (int i = own; i < rows * TILE; i += LINES) {
            int r = i / TILE, c = i % TILE;
            int64_t at = (row + r) * a.n + place_along(a, m + c);
            if (c < here)
                ((E *)a.dst)[at] = tile.x[r][c];
            if (K::FINDS && c < here)
                a.where[at] = tile.where[r][c];
        }
        __syncthreads();
    }
}
