/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folds over a dim: the largest or least element, and where it is; products, sums of integers,
 * whether any or all are not 0, logarithms of sums of exponentials. What is folded in which order
 * depends on shapes alone. Threads of a block share a result, and join what they have; few long
 * ones are made in parts by two kernels. All go at the speed of memory.
 *
 * A kind has a type of what is folded, `none` of nothing, `of` an element with its index, `join`,
 * and `put` as a result.
 */

/* ---- kinds ----------------------------------------------------------------------------------- */

template <class T> struct limits {
    static __device__ inline T least()
    {
        return minus_infinity<T>();
    }
    static __device__ inline T most()
    {
        return -minus_infinity<T>();
    }
};
template <> struct limits<int32_t> {
    static __device__ inline int32_t least()
    {
        return -2147483647 - 1;
    }
    static __device__ inline int32_t most()
    {
        return 2147483647;
    }
};
template <> struct limits<int64_t> {
    static __device__ inline int64_t least()
    {
        return -9223372036854775807 - 1;
    }
    static __device__ inline int64_t most()
    {
        return 9223372036854775807;
    }
};

/* A NaN is larger and smaller than any number. */
template <class T> __device__ inline bool is_better(int32_t least, T x, T best)
{
    return (least ? x < best : x > best) || (x != x && best == best);
}

template <class E> struct extreme {
    typedef typename number<E>::sum type;
    static __device__ inline type none(const fold_args &a)
    {
        return get(put<E>(a.flag ? limits<type>::most() : limits<type>::least()));
    }
    static __device__ inline type of(const fold_args &, E x, int64_t)
    {
        return get(x);
    }
    static __device__ inline type join(const fold_args &a, type x, type y)
    {
        return is_better(a.flag, y, x) ? y : x;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        ((TO *)a.dst)[at] = put<TO>(x);
    }
};
/* Bytes are folded in i32, but begin with the largest or the least of them. */
template <> __device__ inline int32_t extreme<i8>::none(const fold_args &a)
{
    return a.flag ? 127 : -128;
}
template <> __device__ inline int32_t extreme<u8>::none(const fold_args &a)
{
    return a.flag ? 255 : 0;
}
template <> __device__ inline int32_t extreme<b8>::none(const fold_args &a)
{
    return a.flag ? 1 : 0;
}

/* An element and its index, below 0: there is none. */
template <class T> struct placed {
    T value;
    int64_t index;
};

template <class E> struct where {
    typedef placed<typename number<E>::sum> type;
    static __device__ inline type none(const fold_args &)
    {
        type x = {0, -1};
        return x;
    }
    static __device__ inline type of(const fold_args &, E x, int64_t index)
    {
        type y = {get(x), index};
        return y;
    }
    /* Of equal elements the first one wins. */
    static __device__ inline type join(const fold_args &a, type x, type y)
    {
        bool better = is_better(a.flag, y.value, x.value);
        bool same = !better && !is_better(a.flag, x.value, y.value);

        if (y.index < 0)
            return x;
        return x.index < 0 || better || (same && y.index < x.index) ? y : x;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        if (!a.index) {
            ((TO *)a.dst)[at] = (TO)x.index;
            return;
        }
        ((E *)a.dst)[at] = put<E>(x.value);
        a.index[at] = x.index;
    }
};

/* Integers in 64 bits, which wrap around. */
template <class E, bool whole = number<E>::whole> struct factor {
    typedef typename number<E>::sum type;
};
template <class E> struct factor<E, true> {
    typedef uint64_t type;
};

template <class E> struct product {
    typedef typename factor<E>::type type;
    static __device__ inline type none(const fold_args &)
    {
        return 1;
    }
    static __device__ inline type of(const fold_args &, E x, int64_t)
    {
        return (type)get(x);
    }
    static __device__ inline type join(const fold_args &, type x, type y)
    {
        return x * y;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        ((TO *)a.dst)[at] = put<TO>((typename number<TO>::sum)x);
    }
};

template <class E> struct total {
    typedef uint64_t type;
    static __device__ inline type none(const fold_args &)
    {
        return 0;
    }
    static __device__ inline type of(const fold_args &, E x, int64_t)
    {
        return (type)get(x);
    }
    static __device__ inline type join(const fold_args &, type x, type y)
    {
        return x + y;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        ((TO *)a.dst)[at] = put<TO>((typename number<TO>::sum)x);
    }
};

/* Whether any element is not 0; or, to find whether all are not, whether any is 0. */
template <class E> struct truth {
    typedef int32_t type;
    static __device__ inline type none(const fold_args &)
    {
        return 0;
    }
    static __device__ inline type of(const fold_args &a, E x, int64_t)
    {
        return (get(x) != 0) != (a.flag != 0);
    }
    static __device__ inline type join(const fold_args &, type x, type y)
    {
        return x | y;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        ((TO *)a.dst)[at] = put<TO>((x != 0) != (a.flag != 0));
    }
};

/* The largest element, and the sum of e^(x - most); of nothing but -inf that is 0. */
template <class T> struct powers {
    T most, sum;
};

template <class E> struct log_sum {
    typedef typename number<E>::sum real;
    typedef powers<real> type;
    static __device__ inline type none(const fold_args &)
    {
        type x = {minus_infinity<real>(), 0};
        return x;
    }
    static __device__ inline type of(const fold_args &, E x, int64_t)
    {
        type y = {get(x), (real)(get(x) == minus_infinity<real>() ? 0 : 1)};
        return y;
    }
    static __device__ inline real shrunk(type x, real most)
    {
        return x.sum == 0 ? (real)0 : x.most == most ? x.sum : x.sum * exp(x.most - most);
    }
    static __device__ inline type join(const fold_args &, type x, type y)
    {
        type z;
        z.most = larger(x.most, y.most);
        z.sum = shrunk(x, z.most) + shrunk(y, z.most);
        return z;
    }
    template <class TO> static __device__ inline void put_at(const fold_args &a, int64_t at, type x)
    {
        ((TO *)a.dst)[at] = put<TO>(x.most + log(x.sum));
    }
};

/* ---- folding --------------------------------------------------------------------------------- */

/* Where a thread is: the result it works at, and which of its team it is. */
struct fold_place {
    int item, items, self;
};

template <bool ROWS> __device__ inline fold_place place_of(const fold_args &a)
{
    fold_place p;

    p.items = blockDim.x / a.team;
    p.item = ROWS ? threadIdx.x / a.team : threadIdx.x % p.items;
    p.self = ROWS ? threadIdx.x % a.team : threadIdx.x / p.items;
    return p;
}

/* What the lane `apart` from this one has. */
template <class T> __device__ inline T from_lane(const T &x, int apart)
{
    enum { WORDS = sizeof(T) / 4 };
    union {
        uint32_t word[WORDS];
        T x;
    } both;

    both.x = x;
    UNROLL
    for (int w = 0; w < WORDS; w++)
        both.word[w] = __shfl_xor_sync(0xffffffffu, both.word[w], apart);
    return both.x;
}

/*
 * Join what the threads of a team have; the first of them gets it. A team is neighbouring threads.
 * room: one value for each warp.
 */
template <class KIND>
__device__ inline typename KIND::type join_row(const fold_args &a, const fold_place &p,
                                               typename KIND::type mine, typename KIND::type *room)
{
    int together = a.team < WARP ? a.team : WARP, warp = threadIdx.x / WARP;

    for (int half = together / 2; half > 0; half /= 2)
        mine = KIND::join(a, mine, from_lane(mine, half));
    if (a.team <= WARP)
        return mine;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        room[warp] = mine;
    __syncthreads();
    for (int w = 1; w < a.team / WARP && p.self == 0; w++)
        mine = KIND::join(a, mine, room[warp + w]);
    return mine;
}

/*
 * The same for columns, where neighbouring threads have different columns; room: LANES values for
 * each thread.
 */
template <class KIND, int LANES>
__device__ inline void join_columns(const fold_args &a, const fold_place &p,
                                    typename KIND::type *mine, typename KIND::type *room)
{
    for (int half = a.team / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int k = 0; k < LANES; k++)
            room[k * blockDim.x + threadIdx.x] = mine[k];
        __syncthreads();
        for (int k = 0; k < LANES && p.self < half; k++)
            mine[k] = KIND::join(a, mine[k], room[k * blockDim.x + threadIdx.x + half * p.items]);
    }
}

template <class KIND, class TO>
__device__ inline void put_fold(const fold_args &a, int64_t at, typename KIND::type x)
{
    if (a.partial)
        ((typename KIND::type *)a.dst)[at] = x;
    else
        KIND::template put_at<TO>(a, at, x);
}

/* Element `at`, which is the mth of mid. */
template <class KIND, class E>
__device__ inline typename KIND::type folded_at(const fold_args &a, int64_t at, int64_t m)
{
    int64_t index = a.from_index ? a.from_index[at] : a.first + m * a.step;

    return KIND::of(a, ((const E *)a.src)[at], index);
}

/* Every `team`th of the elements from `from` on, n of them, of a row. */
template <class KIND, class E>
__device__ inline typename KIND::type fold_row(const fold_args &a, int64_t at, int64_t from,
                                               int64_t n, int self)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    const E *x = (const E *)a.src + at;
    int64_t groups = a.wide ? n / LANES : 0;
    typename KIND::type mine = KIND::none(a);

    for (int64_t i = self; i < groups; i += a.team) {
        group g = ((const group *)x)[i];
        for (int k = 0; k < LANES; k++)
            mine =
                KIND::join(a, mine, KIND::of(a, g.x[k], a.first + (from + i * LANES + k) * a.step));
    }
    for (int64_t i = groups * LANES + self; i < n; i += a.team)
        mine = KIND::join(a, mine, folded_at<KIND, E>(a, at + i, from + i));
    return mine;
}

/* Rows: inner is 1. */
template <class KIND, class TO, class E>
__device__ inline void fold_rows(const fold_args &a, typename KIND::type *room)
{
    typedef typename KIND::type type;
    fold_place p = place_of<true>(a);
    int64_t rows = a.outer * a.parts;

    for (int64_t t = blockIdx.x; t * p.items < rows; t += gridDim.x) {
        int64_t part = t * p.items + p.item, row = part / a.parts;
        int64_t from = (part - row * a.parts) * a.length, at = row * a.mid + from;
        int64_t n = part >= rows ? 0 : a.mid - from < a.length ? a.mid - from : a.length;
        type mine = KIND::none(a);
        if (!a.joins)
            mine = fold_row<KIND, E>(a, at, from, n, p.self);
        for (int64_t i = p.self; i < n && a.joins; i += a.team)
            mine = KIND::join(a, mine, ((const type *)a.src)[at + i]);
        mine = join_row<KIND>(a, p, mine, room);
        if (p.self == 0 && part < rows)
            put_fold<KIND, TO>(a, part, mine);
    }
}

/* Columns, LANES of them a thread. */
template <class KIND, class TO, class E, int LANES>
__device__ inline void fold_columns(const fold_args &a, typename KIND::type *room)
{
    typedef typename KIND::type type;
    typedef pack<E, LANES> group;
    fold_place p = place_of<false>(a);
    type mine[LANES];

    for (int64_t t = blockIdx.x; t < a.outer * a.parts * a.tiles; t += gridDim.x) {
        int64_t part = t / a.tiles, outer = part / a.parts;
        int64_t col = ((t - part * a.tiles) * p.items + p.item) * LANES;
        int64_t from = (part - outer * a.parts) * a.length;
        int64_t n = a.mid - from < a.length ? a.mid - from : a.length;
        for (int k = 0; k < LANES; k++)
            mine[k] = KIND::none(a);
        for (int64_t m = p.self; m < n && col < a.inner; m += a.team) {
            int64_t at = (outer * a.mid + from + m) * a.inner + col;
            if (LANES > 1) {
                group g = *(const group *)((const E *)a.src + at);
                for (int k = 0; k < LANES; k++)
                    mine[k] =
                        KIND::join(a, mine[k], KIND::of(a, g.x[k], a.first + (from + m) * a.step));
            } else {
                mine[0] = KIND::join(a, mine[0],
                                     a.joins ? ((const type *)a.src)[at]
                                             : folded_at<KIND, E>(a, at, from + m));
            }
        }
        join_columns<KIND, LANES>(a, p, mine, room);
        for (int k = 0; k < LANES && p.self == 0 && col < a.inner; k++)
            put_fold<KIND, TO>(a, part * a.inner + col + k, mine[k]);
    }
}

/* Blocks of 256 threads, with what each of them has in memory. */
template <class KIND, class TO, class E> __device__ inline void fold_by(const fold_args &a)
{
    enum { LANES = vector<E>::LANES < 4 ? vector<E>::LANES : 4 };
    SHARED_BYTES(memory);
    typename KIND::type *room = (typename KIND::type *)memory;

    if (a.inner == 1)
        fold_rows<KIND, TO, E>(a, room);
    else if (a.wide)
        fold_columns<KIND, TO, E, LANES>(a, room);
    else
        fold_columns<KIND, TO, E, 1>(a, room);
}

/* The kinds by name: a template of kinds would need templates as its parameters. */
template <class TO, class E> __device__ void fold_extreme(const fold_extreme_args &a)
{
    fold_by<extreme<E>, TO, E>(a);
}
template <class TO, class E> __device__ void fold_where(const fold_where_args &a)
{
    fold_by<where<E>, TO, E>(a);
}
template <class TO, class E> __device__ void fold_product(const fold_product_args &a)
{
    fold_by<product<E>, TO, E>(a);
}
template <class TO, class E> __device__ void fold_total(const fold_total_args &a)
{
    fold_by<total<E>, TO, E>(a);
}
template <class TO, class E> __device__ void fold_truth(const fold_truth_args &a)
{
    fold_by<truth<E>, TO, E>(a);
}
template <class TO, class E> __device__ void fold_log_sum(const fold_log_sum_args &a)
{
    fold_by<log_sum<E>, TO, E>(a);
}
