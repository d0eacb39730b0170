/* SPDX-License-Identifier: Apache-2.0 */
/* Masks, caps and dropout of the scores that a warp of attention_half.cu has, and which of them are
 * not seen. */

/*
 * The mask for the lane's two rows: for every eight columns a word with the lane's two neighbours,
 * as they are if they have 16 bits, bool as bf16. So the mask can be loaded before scores are
 * there, and stays in registers. Elements beyond the mask are hidden.
 */
template <int N> struct mask_words {
    uint32_t x[2][N];
};

template <class E> struct is_f16 {
    static constexpr bool YES = false;
};
template <> struct is_f16<f16> {
    static constexpr bool YES = true;
};

/* Whether words are pairs of f16, else of bf16. */
template <class E> __device__ inline bool words_are_f16(const attending &a)
{
    return a.mask_kind == ATTENTION_MASK_F16 ||
           (a.mask_kind == ATTENTION_MASK_OWN && is_f16<E>::YES);
}
__device__ inline uint32_t bits_that_hide(bool halves)
{
    return halves ? 0xfc00 : 0xff80;
}

__device__ inline uint32_t mask_bits(const attending &a, int64_t at, bool there, uint32_t hides)
{
    if (!there)
        return hides;
    if (a.mask_kind == ATTENTION_MASK_BOOL)
        return ((const uint8_t *)a.mask)[at] ? 0 : hides;
    return ((const uint16_t *)a.mask)[at];
}

/* Two neighbours, of which `left` are there. */
__device__ inline uint32_t two_of_mask(const attending &a, int64_t at, int64_t step, int left,
                                       uint32_t hides)
{
    if (!a.mask)
        return 0;
    return mask_bits(a, at, left > 0, hides) | mask_bits(a, at + step, left > 1, hides) << 16;
}

/* The same where they are one word, or half of one. */
__device__ inline uint32_t pair_of_mask(const attending &a, int64_t at, uint32_t hides)
{
    if (a.mask_kind != ATTENTION_MASK_BOOL)
        return *(const uint32_t *)((const uint16_t *)a.mask + at);
    uint32_t both = *(const uint16_t *)((const uint8_t *)a.mask + at);
    return (both & 0xff ? 0 : hides) | (both >> 8 ? 0 : hides << 16);
}

/* Whether all of the lane's rows, up to 8 behind the first, and N eights of columns are there, and
 * elements have 16 bits: then loads follow each other without a question between them. */
template <int N>
__device__ inline bool is_simple(const attending &a, int64_t row, int64_t rows, int64_t column,
                                 int64_t columns)
{
    return a.mask && a.mask_kind != ATTENTION_MASK_BOOL && row + 8 < rows &&
           column + 8 * N - 7 < columns;
}

/* Load the mask of queries i.. and keys j.. */
template <class E, int N>
__device__ inline void load_mask(mask_words<N> &to, const attending &a, const head &h, int64_t i,
                                 int64_t j)
{
    uint32_t hides = bits_that_hide(words_are_f16<E>(a));
    int64_t query = i + lane_row(), key = j + lane_column(), step = a.mask_stride[4];
    int64_t at = h.mask + query * a.mask_stride[3] + key * step;
    bool simple = a.mask_pairs && is_simple<N>(a, query, a.queries, key, a.keys);

    UNROLL
    for (int x = 0; x < 2 && simple; x++)
        UNROLL
    for (int n = 0; n < N; n++)
        to.x[x][n] =
            *(const uint32_t *)((const uint16_t *)a.mask + at + 8 * x * a.mask_stride[3] + 8 * n);
    UNROLL
    for (int x = 0; x < 2 && !simple; x++) {
        int left = query + 8 * x >= a.queries ? 0
                   : a.keys - key < 8 * N     ? (int)(a.keys - key)
                                              : 8 * N;
        UNROLL
        for (int n = 0; n < N; n++) {
            int64_t from = at + 8 * x * a.mask_stride[3] + 8 * n * step;
            if (a.mask && a.mask_pairs && 8 * n + 1 < left)
                to.x[x][n] = pair_of_mask(a, from, hides);
            else
                to.x[x][n] = two_of_mask(a, from, step, left - 8 * n, hides);
        }
    }
}

/* The same where rows are keys j.., and columns queries i.. */
template <class E, int N>
__device__ inline void load_mask_across(mask_words<N> &to, const attending &a, const head &h,
                                        int64_t i, int64_t j)
{
    uint32_t hides = bits_that_hide(words_are_f16<E>(a));
    int64_t query = i + lane_column(), key = j + lane_row(), step = a.mask_stride[3];
    int64_t at = h.mask + query * step + key * a.mask_stride[4];
    bool simple = is_simple<N>(a, key, a.keys, query, a.queries);

    UNROLL
    for (int x = 0; x < 2 && simple; x++)
        UNROLL
    for (int n = 0; n < N; n++) {
        const uint16_t *from =
            (const uint16_t *)a.mask + at + 8 * x * a.mask_stride[4] + 8 * n * step;
        to.x[x][n] = from[0] | (uint32_t)from[step] << 16;
    }
    UNROLL
    for (int x = 0; x < 2 && !simple; x++) {
        int left = key + 8 * x >= a.keys       ? 0
                   : a.queries - query < 8 * N ? (int)(a.queries - query)
                                               : 8 * N;
        UNROLL
        for (int n = 0; n < N; n++)
            to.x[x][n] = two_of_mask(a, at + 8 * x * a.mask_stride[4] + 8 * n * step, step,
                                     left - 8 * n, hides);
    }
}

/* Whether the words of the warp show anything. */
template <class E, int N>
__device__ inline bool any_shown(const mask_words<N> &words, const attending &a)
{
    uint32_t hides = bits_that_hide(words_are_f16<E>(a));
    bool shown = false;

    UNROLL
    for (int x = 0; x < 2; x++)
        UNROLL
    for (int n = 0; n < N; n++)
        shown |= words.x[x][n] != (hides | hides << 16);
    return __any_sync(0xffffffffu, shown);
}

template <class M, class K, int N>
__device__ inline void add_words(results<K, N> &s, const mask_words<N> &words, float by)
{
    UNROLL
    for (int x = 0; x < 2; x++)
        UNROLL
    for (int n = 0; n < N; n++)
        UNROLL
    for (int k = 0; k < 2; k++) {
        M shown;
        shown.bits = (uint16_t)(words.x[x][n] >> 16 * k);
        s.x[0][n][2 * x + k] = masked(s.x[0][n][2 * x + k], by, get(shown));
    }
}

template <class K, int N> __device__ inline void cap_scores(results<K, N> &s, float by)
{
    UNROLL
    for (int n = 0; n < N; n++)
        UNROLL
    for (int x = 0; x < 4; x++)
        s.x[0][n][x] = tanh(s.x[0][n][x] * by);
}

/* Scores of what the words are of. */
template <class E, class K, int N>
__device__ inline void add_mask(results<K, N> &s, const mask_words<N> &words, const attending &a)
{
    float by = (float)score_unit(a);

    if (a.cap != 0)
        cap_scores(s, (float)(a.scale / a.cap));
    if (words_are_f16<E>(a))
        add_words<f16>(s, words, by);
    else
        add_words<bf16>(s, words, by);
}

/* Which of 64 scores of each of the lane's rows dropout keeps. */
struct kept {
    uint64_t row[2];
};

/* Of the warp's 16 queries i.. with keys j..: a lane draws half of a row. */
__device__ inline kept kept_of(const attending &a, const head &h, int64_t i, int64_t j)
{
    int lane = threadIdx.x % WARP;
    kept k = {{0, 0}};

    if (!a.drops)
        return k;
    uint32_t own = kept_scores(a, h.score + (i + lane / 2) * a.query_scores + j + lane % 2 * 32);
    for (int x = 0; x < 2; x++) {
        int row = lane_row() + 8 * x;
        uint32_t low = __shfl_sync(0xffffffffu, own, 2 * row);
        uint32_t high = __shfl_sync(0xffffffffu, own, 2 * row + 1);
        k.row[x] = (uint64_t)high << 32 | low;
    }
    return k;
}

/* Columns c.. of the rows: what is dropped is 0, the rest is multiplied. */
template <class K, int N>
__device__ inline void drop(results<K, N> &s, const kept &k, int c, float by)
{
    UNROLL
    for (int x = 0; x < 2; x++) {
        uint64_t bits = k.row[x] >> (c + lane_column());
        UNROLL
        for (int n = 0; n < N; n++)
            UNROLL
        for (int e = 0; e < 2; e++)
            s.x[0][n][2 * x + e] = bits >> (8 * n + e) & 1 ? s.x[0][n][2 * x + e] * by : 0;
    }
}

/* Where rows are keys: words[query][2] have the bits of the block's 64 keys. */
enum { KEPT_WORDS = ATTENTION_HALF_SIDE * 2 };

template <class K, int N>
__device__ inline void drop_across(results<K, N> &s, const uint32_t *words, int c, float by)
{
    int key = warp_row<K>() + lane_row();

    UNROLL
    for (int n = 0; n < N; n++)
        UNROLL
    for (int e = 0; e < 2; e++) {
        uint32_t word = words[2 * (c + 8 * n + lane_column() + e) + key / 32] >> key % 32;
        UNROLL
        for (int x = 0; x < 2; x++)
            s.x[0][n][2 * x + e] = word >> 8 * x & 1 ? s.x[0][n][2 * x + e] * by : 0;
    }
}

/* ---- what is not seen ----------------------------------------------------------------------- */

/* Query i + r sees key j + c if c <= r + this, for r and c below 128. */
__device__ inline int edge_of(const attending &a, int64_t i, int64_t j)
{
    const int64_t FAR = 1024;
    int64_t edge = a.causal ? i + a.ahead - j : FAR;

    return edge > FAR ? FAR : edge < -FAR ? -FAR : (int)edge;
}

/* And if c >= r + this. */
__device__ inline int late_of(const attending &a, int64_t i, int64_t j)
{
    const int64_t FAR = 1024;
    int64_t late = a.window ? i + a.ahead - j + 1 - a.window : -FAR;

    return late > FAR ? FAR : late < -FAR ? -FAR : (int)late;
}

/* The end of what the warp's queries i, i + 1 .. see. */
template <class K>
__device__ inline int64_t seen_by_warp(const attending &a, const head &h, int64_t i)
{
    return i < a.queries ? end_of<K>(a, h, i + 16 * half_shape<K>::PARTS - 1) : 0;
}

/*
 * Set to x what the warp's rows do not see: row r sees columns up to r + edge, and only those
 * before `end`.
 */
template <class K, int N> __device__ inline void hide(results<K, N> &s, int edge, int end, float x)
{
    UNROLL
    for (int m = 0; m < half_shape<K>::PARTS; m++)
        UNROLL
    for (int h = 0; h < 2; h++) {
        int last = min(16 * m + lane_row() + 8 * h + edge, end - 1) - lane_column();
        UNROLL
        for (int n = 0; n < N; n++)
            UNROLL
        for (int k = 0; k < 2; k++)
            s.x[m][n][2 * h + k] = 8 * n + k > last ? x : s.x[m][n][2 * h + k];
    }
}

/* The same of what is too early: row r sees columns from r + late on. */
template <class K, int N> __device__ inline void hide_early(results<K, N> &s, int late, float x)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        int first = lane_row() + 8 * h + late - lane_column();
        UNROLL
        for (int n = 0; n < N; n++)
            UNROLL
        for (int k = 0; k < 2; k++)
            s.x[0][n][2 * h + k] = 8 * n + k < first ? x : s.x[0][n][2 * h + k];
    }
}

/* The same of keys j.. that are outside of the spans of queries i... */
template <class K, int N>
__device__ inline void hide_outside(results<K, N> &s, const attending &a, const head &h, int64_t i,
                                    int64_t j, float x)
{
    UNROLL
    for (int m = 0; m < 2; m++) {
        int64_t query = i + lane_row() + 8 * m;
        int first = 0, end = 0;
        if (query < a.queries) { /* of what is here, in columns of the lane */
            int64_t begin = span_side(a, h, query, 0) - j, stop = span_side(a, h, query, 1) - j;
            first = (int)(begin < 0 ? 0 : begin < 8 * N ? begin : 8 * N) - lane_column();
            end = (int)(stop < 0 ? 0 : stop < 8 * N ? stop : 8 * N) - lane_column();
        }
        UNROLL
        for (int n = 0; n < N; n++)
            UNROLL
        for (int k = 0; k < 2; k++)
            s.x[0][n][2 * m + k] = 8 * n + k < first || 8 * n + k >= end ? x : s.x[0][n][2 * m + k];
    }
}
