/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements taken and put along a dim by index. Kernels that copy move units of 1 to 16 bytes, one a
 * thread; of equal indices the last one is stored, which is found by integers first. To add,
 * entries are sorted by index, so that equal ones follow one another in order, and a thread adds up
 * all that comes to one place, with the bits of the CPU. An index that occurs very often is slow.
 */

/* Whether additions go through rows by pieces of 16 bytes. */
struct wide {
    static constexpr bool WIDE = true;
};
struct each {
    static constexpr bool WIDE = false;
};

/* Element i of [outer,n,inner], and which entry its index means; -1: none that is here. */
struct element_place {
    int64_t o, j, c, entry;
};

__device__ inline element_place find_element(const picking &a, int64_t i)
{
    element_place p;

    if (a.small) {
        uint32_t row = (uint32_t)i / (uint32_t)a.inner, o = row / (uint32_t)a.n;
        p.c = (uint32_t)i - row * (uint32_t)a.inner;
        p.o = o;
        p.j = row - o * (uint32_t)a.n;
    } else {
        int64_t row = i / a.inner;
        p.c = i - row * a.inner;
        p.o = row / a.n;
        p.j = row - p.o * a.n;
    }
    int64_t index = a.index[a.flat ? p.j : i];
    p.entry = (a.each > 1 ? index / a.each : index) - a.first;
    if (p.entry < 0 || p.entry >= a.entries)
        p.entry = -1;
    return p;
}

__device__ inline int64_t entry_place(const picking &a, const element_place &p)
{
    return (p.o * a.entries + p.entry) * a.inner + p.c;
}

template <class UNIT> __device__ void gather(const gather_args &a)
{
    for (int64_t i = global_thread(); i < a.outer * a.n * a.inner; i += all_threads()) {
        element_place p = find_element(a, i);
        UNIT x = {};
        if (p.entry >= 0 && !(a.winner && a.winner[entry_place(a, p)] != (int32_t)p.j))
            x = ((const UNIT *)a.src)[entry_place(a, p)];
        ((UNIT *)a.dst)[i] = x;
    }
}

template <class UNIT> __device__ void scatter(const scatter_args &a)
{
    union {
        uint64_t word[2];
        UNIT unit;
    } value;

    value.word[0] = a.value;
    value.word[1] = 0;
    for (int64_t i = global_thread(); i < a.outer * a.n * a.inner; i += all_threads()) {
        element_place p = find_element(a, i);
        if (p.entry >= 0 && !(a.winner && a.winner[entry_place(a, p)] != (int32_t)p.j))
            ((UNIT *)a.dst)[entry_place(a, p)] = a.src ? ((const UNIT *)a.src)[i] : value.unit;
    }
}

/* UNIT: of winners. */
template <class UNIT> __device__ void winners(const winners_args &a)
{
    for (int64_t i = global_thread(); i < a.outer * a.n * a.inner; i += all_threads()) {
        element_place p = find_element(a, i);
        if (p.entry >= 0)
            atomicMax(&a.winner[entry_place(a, p)], (UNIT)p.j);
    }
}

/* UNIT: of keys. */
template <class UNIT> __device__ void entries(const entries_args &a)
{
    int64_t all = a.of.flat ? a.of.n : a.of.outer * a.of.n * a.of.inner;

    for (int64_t i = global_thread(); i < all; i += all_threads()) {
        if (a.of.flat) {
            int64_t at = a.of.index[i] - a.of.first;
            a.key[i] = at >= 0 && at < a.of.entries ? (UNIT)at : a.none;
        } else {
            element_place p = find_element(a.of, i);
            a.key[i] = p.entry < 0 ? a.none : (UNIT)entry_place(a.of, p);
        }
    }
}

/* Add the rows of sorted places from t on, before `end`, that have the key; loads of several are on
 * their way. */
template <class E, int N>
__device__ inline void add_rows(typename number<E>::sum *sum, const add_sorted_args &a,
                                const E *src, uint32_t key, int64_t t, int64_t end)
{
    enum { AHEAD = 4 };
    typename number<E>::sum x[AHEAD][N];

    for (bool more = true; more; t += AHEAD) {
        UNROLL
        for (int u = 0; u < AHEAD; u++)
            if (t + u < end && a.key[t + u] == key)
                load<E, N>(x[u], src + a.position[t + u] * a.inner);
        UNROLL
        for (int u = 0; u < AHEAD; u++) {
            more = t + u < end && a.key[t + u] == key;
            if (more)
                UNROLL
            for (int k = 0; k < N; k++)
                sum[k] += x[u][k];
        }
    }
}

/* Of more than ADD_GROUP rows the sums of groups are added in f64, as kernels/sums.h says. */
template <class K, class E> __device__ void add_sorted(const add_sorted_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    T sum[N];
    double total[N];

    for (int64_t i = global_thread(); i < a.outer * a.n * a.pieces; i += all_threads()) {
        int64_t row = i / a.pieces, c = (i - row * a.pieces) * N, o = row / a.n, t = row - o * a.n;
        uint32_t key = a.key[t];
        if (key == a.none || (t > 0 && a.key[t - 1] == key))
            continue;
        const E *src = (const E *)a.src + o * a.n * a.inner + c;
        E *dst = (E *)a.dst + (o * a.entries + key) * a.inner + c;
        load<E, N>(sum, dst);
        bool more = sizeof(T) == 4 && t + ADD_GROUP < a.n && a.key[t + ADD_GROUP] == key;
        if (!more) {
            add_rows<E, N>(sum, a, src, key, t, a.n);
            store<E, N>(dst, sum);
            continue;
        }
        UNROLL
        for (int k = 0; k < N; k++)
            total[k] = sum[k];
        for (; more; t += ADD_GROUP) {
            more = t + ADD_GROUP < a.n && a.key[t + ADD_GROUP] == key;
            UNROLL
            for (int k = 0; k < N; k++)
                sum[k] = 0;
            add_rows<E, N>(sum, a, src, key, t, more ? t + ADD_GROUP : a.n);
            UNROLL
            for (int k = 0; k < N; k++)
                total[k] += sum[k];
        }
        UNROLL
        for (int k = 0; k < N; k++)
            sum[k] = (T)total[k];
        store<E, N>(dst, sum);
    }
}
