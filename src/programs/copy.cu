/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of boxes with strides, whatever the elements are: what is moved at once are
 * units of 1 to 16 bytes. Threads go along what is dense in dst; where src is dense along another
 * dim, tiles are turned in the memory of a block, so that both sides move whole sectors.
 */

template <class UNIT> __device__ void copy_box(const copy_box_args &a)
{
    UNIT *dst = (UNIT *)a.dst;
    const UNIT *src = (const UNIT *)a.src;
    int64_t at[2];

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<2>(a, i, at);
        dst[at[0]] = src[at[1]];
    }
}

template <class UNIT> __device__ void fill_box(const fill_box_args &a)
{
    UNIT *dst = (UNIT *)a.dst;
    int64_t at[1];
    union {
        uint32_t word[4];
        UNIT unit;
    } value;

    for (int k = 0; k < 4; k++)
        value.word[k] = a.value[k];
    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<1>(a, i, at);
        dst[at[0]] = value.unit;
    }
}

enum { TILE = 32 };

/* Blocks of TILE x ROWS threads. A row of a tile in memory has one element more, so that a column
 * lies in different banks. */
template <class UNIT> __device__ void copy_tiles(const copy_tiles_args &a)
{
    __shared__ UNIT tile[TILE][TILE + 1];
    UNIT *dst = (UNIT *)a.dst;
    const UNIT *src = (const UNIT *)a.src;
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE, rows = blockDim.x / TILE;
    int64_t at[2];

    for (int64_t t = blockIdx.x; t < a.tiles; t += gridDim.x) {
        int64_t part = t / a.col_tiles, col = (t - part * a.col_tiles) * TILE;
        int64_t plane = part / a.row_tiles, row = (part - plane * a.row_tiles) * TILE;
        locate<2>(a, plane, at);
        const UNIT *from = src + at[1] + row + col * a.src_col;
        UNIT *to = dst + at[0] + row * a.dst_row + col;
        for (int i = y; i < TILE; i += rows)
            if (row + x < a.rows && col + i < a.cols)
                tile[i][x] = from[x + i * a.src_col];
        __syncthreads();
        for (int i = y; i < TILE; i += rows)
            if (row + i < a.rows && col + x < a.cols)
                to[i * a.dst_row + x] = tile[x][i];
        __syncthreads();
    }
}
