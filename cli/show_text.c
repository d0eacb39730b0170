/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts and moves in letters. A sheet is a grid: rows and columns as wide as their parts of the
 * tensor, as far as letters allow and labels need. What has no room for its label gets a letter,
 * and a line below.
 */
#include "show.h"
#include "table.h"

#include <string.h>

/* No more parts than blocks, and their end. */
enum { GRID = CLI_PICTURE_RANKS + 1, MARGIN = 7, HIGH = 12, WIDE = 60, MOVES_SHOWN = 24 };

/* One direction of a grid: where its parts begin, in elements and in letters. */
typedef struct scale {
    int parts;
    int64_t at[GRID]; /* [parts + 1] */
    int size[GRID];   /* [parts] letters */
} scale;

typedef struct grid {
    const cli_picture *picture;
    const cli_side *side;
    const cli_screen *screen;
    bool is_target;
    int64_t sheet;
    scale row, column;
    int letters; /* given so far */
} grid;

/* Black on these, by the first rank of a block. */
static const unsigned char colors[] = {153, 157, 223, 217, 183, 152, 229, 189, 194, 224, 159, 222};

/* ---- measuring ------------------------------------------------------------------------------- */

/* Put a place into a sorted list. */
static void add_place(scale *s, int64_t at)
{
    int i = s->parts;

    while (i > 0 && s->at[i - 1] > at)
        i--;
    if (i > 0 && s->at[i - 1] == at)
        return;
    memmove(&s->at[i + 1], &s->at[i], (size_t)(s->parts - i) * sizeof s->at[0]);
    s->at[i] = at;
    s->parts++;
}

/* The block whose patch begins here; NULL if there is none. */
static const cli_block *block_at(const grid *g, int64_t row, int64_t column, cli_patch *patch)
{
    for (int i = 0; i < g->side->blocks; i++) {
        const cli_block *block = &g->side->block[i];
        if (cli_patch_of(patch, g->picture, g->sheet, &block->box) && patch->row == row &&
            patch->column == column)
            return block;
    }
    return NULL;
}

static void find_parts(grid *g)
{
    cli_patch patch;

    g->row.parts = g->column.parts = 0;
    for (int i = 0; i < g->side->blocks; i++)
        if (cli_patch_of(&patch, g->picture, g->sheet, &g->side->block[i].box)) {
            add_place(&g->row, patch.row);
            add_place(&g->column, patch.column);
        }
    g->row.at[g->row.parts] = g->picture->rows;
    g->column.at[g->column.parts] = g->picture->columns;
}

/* Divide `total` letters among the parts by their sizes; each gets `least` or more. */
static void spread(scale *s, int64_t n, int total, int least)
{
    for (int i = 0; i < s->parts; i++) {
        double share = (double)(s->at[i + 1] - s->at[i]) / (double)n;
        int size = (int)(share * total + 0.5);
        s->size[i] = size < least ? least : size;
    }
}

static void find_sizes(grid *g)
{
    int room = g->screen->width - MARGIN - g->column.parts - 8; /* the last number too */
    int wide = room < WIDE ? room : WIDE, narrow = 3;
    double shape = (double)g->picture->rows / (double)g->picture->columns;

    /* Many parts take the whole screen; a letter is about twice as high as wide. */
    if (g->column.parts * 8 > wide)
        wide = room;
    double high = shape * wide / 2;
    if (high > HIGH && wide > 24) { /* keep the shape where that leaves room for labels */
        wide = (int)(wide * HIGH / high);
        wide = wide < 24 ? 24 : wide;
        high = HIGH;
    }
    spread(&g->column, g->picture->columns, wide, narrow);
    spread(&g->row, g->picture->rows, high > HIGH ? HIGH : (int)high, g->is_target ? 2 : 1);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void repeat(FILE *to, char letter, int count)
{
    for (int i = 0; i < count; i++)
        fputc(letter, to);
}

/* Where the columns begin, as far as there is room for the numbers. */
static void print_places(FILE *to, const grid *g)
{
    int at = 0, place = 0;
    char number[32];

    repeat(to, ' ', MARGIN);
    for (int i = 0; i <= g->column.parts; i++) {
        int length = snprintf(number, sizeof number, "%lld", (long long)g->column.at[i]);
        if (i == 0 || place > at) {
            repeat(to, ' ', place - at);
            fputs(number, to);
            at = place + length;
        }
        place += i < g->column.parts ? g->column.size[i] + 1 : 0;
    }
    fputc('\n', to);
}

static void print_border(FILE *to, const grid *g, int64_t row)
{
    if (g->picture->ndim > 1)
        fprintf(to, "%*lld +", MARGIN - 1, (long long)row);
    else
        fprintf(to, "%*s+", MARGIN, "");
    for (int i = 0; i < g->column.parts; i++) {
        repeat(to, '-', g->column.size[i]);
        fputc('+', to);
    }
    fputc('\n', to);
}

/*
 * What stands in a block: its ranks, or a letter; then what it receives. `line` counts from the
 * middle.
 */
static void cell_text(char out[CLI_LABEL], grid *g, const cli_block *block, int width, int line)
{
    char label[CLI_LABEL], bytes[32];
    int64_t received = g->is_target ? cli_block_received(g->picture, block) : 0;

    out[0] = '\0';
    if (line == 0) {
        cli_block_label(label, sizeof label, g->side, block);
        if ((int)strlen(label) > width)
            cli_letter(label, sizeof label, g->letters++);
        snprintf(out, CLI_LABEL, "%s", label);
    } else if (line == 1 && received > 0) {
        cli_bytes_text(bytes, sizeof bytes, received);
        if ((int)strlen(bytes) < width)
            snprintf(out, CLI_LABEL, "+%s", bytes);
    }
}

static void print_cell(FILE *to, grid *g, int i, const char *text, const cli_block *block)
{
    int width = g->column.size[i], length = (int)strlen(text);
    int before = width > length ? (width - length) / 2 : 0;

    if (block && g->screen->color)
        fprintf(to, "\033[30;48;5;%dm",
                colors[(size_t)g->side->rank[block->first] % sizeof colors]);
    repeat(to, ' ', before);
    fprintf(to, "%.*s", width, text);
    repeat(to, ' ', width - before - length);
    if (block && g->screen->color)
        fputs("\033[0m", to);
    fputc('|', to);
}

static void print_row(FILE *to, grid *g, int r)
{
    int high = g->row.size[r], middle = (high - 1) / 2;
    char text[CLI_LABEL];
    cli_patch patch;

    for (int line = 0; line < high; line++) {
        fprintf(to, "%*s|", MARGIN, "");
        for (int c = 0; c < g->column.parts; c++) {
            const cli_block *block = block_at(g, g->row.at[r], g->column.at[c], &patch);
            text[0] = '\0';
            if (block)
                cell_text(text, g, block, g->column.size[c], line - middle);
            print_cell(to, g, c, text, block);
        }
        fputc('\n', to);
    }
}

static void print_grid(FILE *to, grid *g)
{
    find_parts(g);
    find_sizes(g);
    print_places(to, g);
    for (int r = 0; r < g->row.parts; r++) {
        print_border(to, g, g->row.at[r]);
        print_row(to, g, r);
    }
    print_border(to, g, g->picture->rows);
}

/* ---- legends --------------------------------------------------------------------------------- */

/* The letters of a sheet, in the order in which print_row gave them. */
static void print_letters(FILE *to, grid *g, int first)
{
    char label[4 * CLI_LABEL], letter[8];
    cli_patch patch;

    for (int r = 0; r < g->row.parts; r++)
        for (int c = 0; c < g->column.parts; c++) {
            const cli_block *block = block_at(g, g->row.at[r], g->column.at[c], &patch);
            if (!block)
                continue;
            cli_block_label(label, CLI_LABEL, g->side, block);
            if ((int)strlen(label) <= g->column.size[c])
                continue;
            cli_block_label(label, sizeof label, g->side, block);
            fprintf(to, "%*s%s = %s\n", MARGIN, "", cli_letter(letter, sizeof letter, first++),
                    label);
        }
}

static void print_notes(FILE *to, const cli_side *side)
{
    char text[256];

    cli_pending_text(text, sizeof text, side->layout);
    if (*text)
        fprintf(to, "%*s%s: ranks joined by + hold addends\n", MARGIN, "", text);
    if (side->has_replicas)
        fprintf(to, "%*sranks joined by , or - hold the same\n", MARGIN, "");
    cli_idle_text(text, sizeof text, side);
    if (*text)
        fprintf(to, "%*sno elements on %s\n", MARGIN, "", text);
}

static void print_side(FILE *to, const cli_picture *picture, int which, const cli_screen *screen)
{
    const cli_side *side = &picture->side[which];
    grid g = {.picture = picture, .side = side, .screen = screen, .is_target = which == 1};
    char name[128];

    fprintf(to, "%s%s\n",
            picture->sides == 1 ? ""
            : which == 0        ? "from "
                                : "to   ",
            sherd_layout_text(side->layout));
    for (g.sheet = 0; g.sheet < picture->sheets && g.sheet < CLI_SHEETS; g.sheet++) {
        int first = g.letters;
        cli_sheet_name(name, sizeof name, picture, g.sheet);
        if (*name)
            fprintf(to, "%*s%s\n", MARGIN, "", name);
        print_grid(to, &g);
        print_letters(to, &g, first);
    }
    if (picture->sheets > CLI_SHEETS)
        fprintf(to, "%*sand %lld more of these\n", MARGIN, "",
                (long long)(picture->sheets - CLI_SHEETS));
    if (picture->sheets == 0)
        fprintf(to, "%*sthe tensor has no elements\n", MARGIN, "");
    print_notes(to, side);
}

/* ---- what moves ------------------------------------------------------------------------------ */

static void print_move(FILE *to, const cli_picture *picture, const cli_block *target,
                       const cli_piece *piece)
{
    char source[CLI_LABEL], label[CLI_LABEL], bytes[32];

    cli_block_label(source, sizeof source, &picture->side[0], &picture->side[0].block[piece->from]);
    cli_block_label(label, sizeof label, &picture->side[1], target);
    fprintf(to, "  %10s  %s -> %s  ", cli_bytes_text(bytes, sizeof bytes, piece->bytes_total),
            source, label);
    for (int d = 0; d < piece->box.ndim; d++)
        fprintf(to, "%s[%lld,%lld)", d ? "x" : "", (long long)piece->box.offset[d],
                (long long)(piece->box.offset[d] + piece->box.size[d]));
    fputc('\n', to);
}

static void print_moves(FILE *to, const cli_picture *picture)
{
    int64_t moves = 0;
    cli_piece piece;

    for (int t = 0; t < picture->side[1].blocks; t++)
        for (int s = 0; s < picture->side[0].blocks; s++) {
            const cli_block *target = &picture->side[1].block[t];
            if (!cli_piece_of(&piece, picture, target, s) || piece.bytes_total == 0)
                continue;
            if (moves == 0)
                fputs("what must move\n", to);
            if (moves++ < MOVES_SHOWN)
                print_move(to, picture, target, &piece);
        }
    if (moves > MOVES_SHOWN)
        fprintf(to, "  and %lld more pieces\n", (long long)(moves - MOVES_SHOWN));
}

void cli_show_text(FILE *to, const cli_picture *picture, const sherd_plan *plan,
                   const cli_screen *screen)
{
    char line[1024];

    print_side(to, picture, 0, screen);
    if (picture->sides < 2)
        return;
    fputc('\n', to);
    print_side(to, picture, 1, screen);
    fputc('\n', to);
    print_moves(to, picture);
    if (!plan)
        return;
    cli_plan_line(line, sizeof line, plan);
    fprintf(to, "%s\n", line);
}
