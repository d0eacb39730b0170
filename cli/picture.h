/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `sherd show` draws, before anybody says how: blocks (a box and the ranks that hold it),
 * slices (tensors of more than two dims are drawn as pictures of their last two), and pieces (what
 * of a target block comes from which source block). Costs memory and time by the ranks of the
 * meshes, so there is a limit.
 */
#ifndef SHERD_CLI_PICTURE_H
#define SHERD_CLI_PICTURE_H

#include "layout/layout.h"
#include "options.h"

enum { CLI_PICTURE_RANKS = 1024, CLI_LABEL = 96 };

/*
 * A box that is not empty, and the ranks [first, first + count) of the side's list that hold it, or
 * addends of it.
 */
typedef struct cli_block {
    sherd_box box;
    int first, count;
} cli_block;

typedef struct cli_side {
    const sherd_layout *layout;
    int blocks;
    cli_block *block; /* sorted by place */
    int ranks;
    int *rank;         /* all ranks of the mesh; those without elements come last */
    int holders;       /* how many have elements */
    bool has_replicas; /* some block is held by two ranks */
} cli_side;

/*
 * A tensor seen as a stack of sheets of rows and columns. Each dim before the last two is cut where
 * a side cuts it.
 */
typedef struct cli_picture {
    sherd__heap *heap;
    int sides; /* 1, or source and target */
    cli_side side[2];
    int ndim;
    int64_t rows, columns; /* of a sheet; 1 where there is no such dim */
    int64_t *cut[SHERD_MAX_DIMS];
    int cuts[SHERD_MAX_DIMS]; /* of the dims before the last two: pieces + 1 */
    int64_t sheets;
    size_t element_bytes;
    int64_t addends; /* that come together in an element of the target */
} cli_picture;

/* What is drawn of a box on a sheet. */
typedef struct cli_patch {
    int64_t row, rows, column, columns;
} cli_patch;

/* A part of a target block that lies in one source block. */
typedef struct cli_piece {
    sherd_box box;
    int from; /* block of the source */
    /* that a rank of the target block, and all of them, receive of it in a direct move */
    int64_t bytes_max, bytes_total;
} cli_piece;

/*
 * The picture of a problem's layouts; a failure is in its diag, and `out` is to be cleared in any
 * case.
 */
sherd_status cli_picture_make(cli_picture *out, sherd__heap *heap, cli_problem *p);
void cli_picture_clear(cli_picture *picture);

/* The patch of a box on a sheet; false if the box is not on it. */
bool cli_patch_of(cli_patch *out, const cli_picture *picture, int64_t sheet, const sherd_box *box);
/* "[0,3) x [2,4) of the dims before the last two"; "" where there are none. */
void cli_sheet_name(char *out, size_t room, const cli_picture *picture, int64_t sheet);
/* The piece of a target block in source block `from`; false if there is none. */
bool cli_piece_of(cli_piece *out, const cli_picture *picture, const cli_block *target, int from);
/* Bytes that a rank of a target block receives at most. */
int64_t cli_block_received(const cli_picture *picture, const cli_block *target);

/*
 * "0,2", "0-3"; ranks that hold addends of each other are joined with a plus: "0+1". Cut with ".."
 * at the room.
 */
void cli_block_label(char *out, size_t room, const cli_side *side, const cli_block *block);
/* The pending reductions of a layout in words; "" if there are none. */
void cli_pending_text(char *out, size_t room, const sherd_layout *layout);

#endif
