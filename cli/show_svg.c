/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts and moves as a picture: SVG, text as text. Blocks are to scale and lightly tinted; what a
 * rank did not hold before is hatched and carries its bytes, so that it reads in black and white
 * too; arrows lead there from where it was.
 */
#include "show.h"
#include "table.h"

#include <string.h>

/* Sizes in a panel, in points. */
enum {
    WIDE = 300,
    HIGH = 300,
    LOW = 76,
    MARGIN = 46,
    GAP = 96,
    TITLE = 48,
    ARROWS = 24,
    NOTE = 17
};

static const char *const tints[] = {"#d6e6f4", "#fbe3cf", "#d9efd8", "#f6dbe4",
                                    "#e6dff1", "#f8f1c9", "#d5eeee", "#ebe2d6"};

typedef struct drawing {
    FILE *to;
    const cli_picture *picture;
    double unit_x, unit_y; /* points an element */
    double left[2], top;   /* corner of the two grids of a sheet */
    int64_t sheet;
    int letters;
    int arrows; /* of the sheet; more than ARROWS are not drawn */
} drawing;

typedef struct rect {
    double x, y, width, height;
} rect;

typedef struct point {
    double x, y;
} point;

/* ---- letters --------------------------------------------------------------------------------- */

/* Text with what XML wants written otherwise. */
static void put_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", to);
        else if (*text == '<')
            fputs("&lt;", to);
        else if (*text == '>')
            fputs("&gt;", to);
        else
            fputc(*text, to);
    }
}

/* About how wide a text is. */
static double width_of(const char *text, double size)
{
    return 0.6 * size * (double)strlen(text);
}

/* `kind`: a class of the style sheet; a text wider than `room` is set smaller. */
static void text_at(drawing *d, point at, const char *kind, double size, double room,
                    const char *text)
{
    double wide = width_of(text, size);

    if (room > 0 && wide > room)
        size *= room / wide;
    fprintf(d->to, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\">", kind, at.x, at.y,
            size);
    put_text(d->to, text);
    fputs("</text>\n", d->to);
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool rect_of(rect *out, const drawing *d, int which, const sherd_box *box)
{
    cli_patch patch;

    if (!cli_patch_of(&patch, d->picture, d->sheet, box))
        return false;
    out->x = d->left[which] + (double)patch.column * d->unit_x;
    out->y = d->top + (double)patch.row * d->unit_y;
    out->width = (double)patch.columns * d->unit_x;
    out->height = (double)patch.rows * d->unit_y;
    return true;
}

static double grid_height(const cli_picture *picture)
{
    double shape = (double)picture->rows / (double)picture->columns * WIDE;

    return shape > HIGH ? HIGH : shape < LOW ? LOW : shape;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void put_rect(drawing *d, const rect *r, const char *kind, const char *fill)
{
    fprintf(
        d->to,
        "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
        kind, r->x, r->y, r->width, r->height, fill);
}

static void put_block(drawing *d, int which, const cli_block *block)
{
    const cli_side *side = &d->picture->side[which];
    int color = side->rank[block->first] % (int)(sizeof tints / sizeof tints[0]);
    bool pending = side->layout->pending_axes != 0;
    rect r;

    if (rect_of(&r, d, which, &block->box))
        put_rect(d, &r, pending ? "pending" : "block", tints[color]);
}

/* Upwards in the middle of a narrow block; as large as it is wide. */
static void put_upright(drawing *d, const rect *r, const char *label)
{
    double size = r->width * 0.8 < 11 ? r->width * 0.8 : 11;
    double x = r->x + r->width / 2 + size / 3, y = r->y + r->height / 2;

    fprintf(d->to,
            "<text class=\"label middle\" transform=\"translate(%.1f,%.1f) rotate(-90)\" "
            "font-size=\"%.1f\">",
            x, y, size);
    put_text(d->to, label);
    fputs("</text>\n", d->to);
}

/* How a block's label is set. */
typedef enum fit { FULL, NUMBERS, UPRIGHT, LETTER } fit;

static const double label_size = 13;

static fit fit_of(const rect *r, const char *full, const char *numbers)
{
    double room = r->width - 8;

    if (width_of(full, label_size) <= room)
        return FULL;
    if (width_of(numbers, label_size) <= room)
        return NUMBERS;
    return r->height > r->width && width_of(numbers, r->width * 0.8) < r->height ? UPRIGHT : LETTER;
}

/*
 * "rank 2", "ranks 0,2"; the numbers alone, upright, or a letter that is said below, where that is
 * too long.
 */
static fit put_label(drawing *d, int which, const cli_block *block)
{
    const cli_side *side = &d->picture->side[which];
    char ranks[CLI_LABEL], label[CLI_LABEL + 8];
    double size = label_size;
    rect r;

    if (!rect_of(&r, d, which, &block->box))
        return FULL;
    cli_block_label(ranks, sizeof ranks, side, block);
    snprintf(label, sizeof label, "%s %s", block->count > 1 ? "ranks" : "rank", ranks);
    fit kind = fit_of(&r, label, ranks);
    if (kind == NUMBERS || kind == UPRIGHT)
        snprintf(label, sizeof label, "%s", ranks);
    if (kind == LETTER)
        cli_letter(label, sizeof label, d->letters++);
    if (r.height < size + 3)
        size = r.height > 6 ? r.height - 3 : r.height * 0.7;
    if (kind == UPRIGHT)
        put_upright(d, &r, label);
    else if (which == 1 && d->picture->sides == 2)
        text_at(d, (point){r.x + 5, r.y + size + 2}, "label", size, r.width - 6, label);
    else
        text_at(d, (point){r.x + r.width / 2, r.y + r.height / 2 + size / 3}, "label middle", size,
                r.width - 2, label);
    return kind;
}

/* Where rows and columns are cut: numbers along the edges, as far as they keep apart. */
static void put_places(drawing *d, int which)
{
    const cli_side *side = &d->picture->side[which];
    char number[32];
    rect r;

    for (int i = 0; i < side->blocks; i++) {
        if (!rect_of(&r, d, which, &side->block[i].box))
            continue;
        int n = d->picture->ndim;
        if (n > 0 && r.y < d->top + 0.1 && r.width >= 14) {
            snprintf(number, sizeof number, "%lld", (long long)side->block[i].box.offset[n - 1]);
            text_at(d, (point){r.x, d->top - 5}, "place", 9, 0, number);
        }
        if (n > 1 && r.x < d->left[which] + 0.1 && r.height >= 10) {
            snprintf(number, sizeof number, "%lld", (long long)side->block[i].box.offset[n - 2]);
            text_at(d, (point){d->left[which] - 5, r.y + 8}, "place end", 9, 0, number);
        }
    }
}

static void put_side(drawing *d, int which)
{
    const cli_side *side = &d->picture->side[which];

    for (int i = 0; i < side->blocks; i++)
        put_block(d, which, &side->block[i]);
    put_places(d, which);
}

/* ---- what moves ------------------------------------------------------------------------------ */

/* Pieces of a target block that some rank of it receives. */
static bool next_piece(cli_piece *out, const drawing *d, const cli_block *target, int *from)
{
    while (*from < d->picture->side[0].blocks) {
        rect r;
        if (cli_piece_of(out, d->picture, target, (*from)++) && out->bytes_total > 0 &&
            rect_of(&r, d, 1, &out->box))
            return true;
    }
    return false;
}

static bool overlap(const rect *a, const rect *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height &&
           b->y < a->y + a->height;
}

/* The bytes of a piece in its middle, or below, if the block's label leaves room. */
static void put_bytes(drawing *d, const rect *r, const rect *block, const cli_piece *piece)
{
    char bytes[32], from[CLI_LABEL], text[CLI_LABEL + 40];
    const double size = 10.5;
    const rect label = {block->x, block->y, block->width < 60 ? block->width : 60, 19};

    cli_bytes_text(bytes, sizeof bytes, piece->bytes_max);
    cli_block_label(from, sizeof from, &d->picture->side[0],
                    &d->picture->side[0].block[piece->from]);
    snprintf(text, sizeof text, "%s from %s", bytes, from);
    if (width_of(text, size) > r->width - 4)
        snprintf(text, sizeof text, "%s", bytes);
    double wide = width_of(text, size);
    rect at = {r->x + (r->width - wide) / 2, r->y + r->height / 2 - 6, wide, 12};
    if (overlap(&at, &label))
        at.y = r->y + r->height - 14;
    if (overlap(&at, &label) || wide > r->width - 2 || r->height < 12)
        return;
    text_at(d, (point){at.x + wide / 2, at.y + 10}, "bytes middle", size, 0, text);
}

/* All pieces of a target block: hatched, or (`words`) their bytes. */
static void put_pieces(drawing *d, const cli_block *target, bool words)
{
    cli_piece piece;
    rect r, block;
    int from = 0;

    if (!rect_of(&block, d, 1, &target->box))
        return;
    while (next_piece(&piece, d, target, &from)) {
        rect_of(&r, d, 1, &piece.box);
        if (words)
            put_bytes(d, &r, &block, &piece);
        else {
            put_rect(d, &r, "moved", "url(#hatch)");
            d->arrows++;
        }
    }
}

/*
 * From the piece in the source to its place in the target; `height`: where in it, 0 to 1, so that
 * arrows keep apart.
 */
static void put_arrow(drawing *d, const cli_piece *piece, double height)
{
    rect a, b;

    if (!rect_of(&a, d, 0, &piece->box) || !rect_of(&b, d, 1, &piece->box))
        return;
    double x = a.x + a.width / 2, y = a.y + a.height * height;
    double to_x = b.x + (b.width < 20 ? b.width / 2 : 10);
    fprintf(d->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"#333\"/>\n", x, y);
    fprintf(d->to, "<path class=\"arrow\" d=\"M%.1f,%.1f L%.1f,%.1f\"/>\n", x, y, to_x,
            b.y + b.height * height);
}

/*
 * Pieces lie in both grids at the same height, so arrows are level; each piece has a height of its
 * own.
 */
static void put_arrows(drawing *d)
{
    const cli_side *side = &d->picture->side[1];
    cli_piece piece;

    for (int i = 0; i < side->blocks && d->arrows <= ARROWS; i++) {
        int from = 0;
        while (next_piece(&piece, d, &side->block[i], &from))
            put_arrow(d, &piece,
                      0.15 + 0.7 * (i + (from - 0.5) / d->picture->side[0].blocks) / side->blocks);
    }
}

static void put_moves(drawing *d)
{
    const cli_side *side = &d->picture->side[1];

    d->arrows = 0;
    for (int i = 0; i < side->blocks; i++)
        put_pieces(d, &side->block[i], false);
    put_arrows(d);
    for (int i = 0; i < side->blocks; i++)
        put_pieces(d, &side->block[i], true);
}

/* ---- the page -------------------------------------------------------------------------------- */

static void put_head(FILE *to, double width, double height)
{
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n",
            width, height, width, height);
    fputs("<style>\n"
          ".block { stroke: #222; stroke-width: 1.2 }\n"
          ".pending { stroke: #222; stroke-width: 1.2; stroke-dasharray: 5 3 }\n"
          ".moved { stroke: #222; stroke-width: 0.6 }\n"
          ".arrow { fill: none; stroke: #333; stroke-width: 1; stroke-opacity: 0.55; marker-end: "
          "url(#head) }\n"
          ".middle { text-anchor: middle }\n"
          ".end { text-anchor: end }\n"
          ".label { font-weight: bold; paint-order: stroke; stroke: #fff; stroke-width: 3 }\n"
          ".bytes { paint-order: stroke; stroke: #fff; stroke-width: 3 }\n"
          ".place { fill: #555 }\n"
          "</style>\n"
          "<defs>\n"
          "<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" "
          "stroke=\"#444\" stroke-width=\"1.3\"/></pattern>\n"
          "<marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#333\"/>"
          "</marker>\n"
          "</defs>\n",
          to);
    fprintf(to, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width, height);
}

static void put_title(drawing *d, int which)
{
    const cli_side *side = &d->picture->side[which];
    char pending[200], idle[CLI_LABEL], line[400];

    text_at(d, (point){d->left[which], 22}, "title", 13, WIDE + GAP / 2,
            sherd_layout_text(side->layout));
    cli_pending_text(pending, sizeof pending, side->layout);
    cli_idle_text(idle, sizeof idle, side);
    snprintf(line, sizeof line, "%s%s%s%s", pending, *pending ? " (+ joins addends)" : "",
             *pending && *idle ? "; " : "", *idle ? "no elements on " : "");
    strncat(line, idle, sizeof line - strlen(line) - 1);
    if (*line)
        text_at(d, (point){d->left[which], 36}, "place", 10, WIDE + GAP / 2, line);
}

/* All labels of a side; letters are said below from `y` on. Returns where the next line goes. */
static double put_labels(drawing *d, int which, double y)
{
    const cli_side *side = &d->picture->side[which];
    char ranks[CLI_LABEL], letter[8], line[CLI_LABEL + 16];

    for (int i = 0; i < side->blocks; i++) {
        int number = d->letters;
        if (put_label(d, which, &side->block[i]) != LETTER)
            continue;
        cli_block_label(ranks, sizeof ranks, side, &side->block[i]);
        snprintf(line, sizeof line, "%s: %s", cli_letter(letter, sizeof letter, number), ranks);
        text_at(d, (point){d->left[which], y}, "place", 10, WIDE, line);
        y += 13;
    }
    return y;
}

/* One sheet of all sides, its letters below; returns where the next one begins. */
static double put_sheet(drawing *d, double top)
{
    char name[128];
    double bottom = top, height = grid_height(d->picture);

    cli_sheet_name(name, sizeof name, d->picture, d->sheet);
    if (*name)
        text_at(d, (point){MARGIN, top + 10}, "place", 10, 0, name);
    d->top = top + (*name ? 28 : 14);
    for (int i = 0; i < d->picture->sides; i++)
        put_side(d, i);
    if (d->picture->sides == 2)
        put_moves(d);
    for (int i = 0; i < d->picture->sides; i++) {
        double end = put_labels(d, i, d->top + height + 16);
        bottom = end > bottom ? end : bottom;
    }
    return bottom;
}

static void put_notes(drawing *d, double y, const sherd_plan *plan)
{
    char line[1024];
    const rect sample = {MARGIN, y - 10, 22, 12};

    if (d->picture->sheets > CLI_SHEETS) {
        snprintf(line, sizeof line, "and %lld more of these",
                 (long long)(d->picture->sheets - CLI_SHEETS));
        text_at(d, (point){MARGIN, y - NOTE}, "place", 10, 0, line);
    }
    if (d->picture->sides < 2)
        return;
    put_rect(d, &sample, "moved", "url(#hatch)");
    text_at(d, (point){MARGIN + 29, y}, "place", 11, 0,
            "not held before: bytes that a rank receives from others");
    if (!plan)
        return;
    cli_plan_line(line, sizeof line, plan);
    text_at(d, (point){MARGIN, y + NOTE}, "place", 11, 2.0 * WIDE + GAP, line);
}

/*
 * The page's height is known when all is drawn: letters below sheets depend on it. So all is drawn
 * twice, the first time into nothing.
 */
static double put_page(drawing *d, const sherd_plan *plan)
{
    double y = TITLE;

    d->letters = 0;
    for (int i = 0; i < d->picture->sides; i++)
        put_title(d, i);
    for (d->sheet = 0; d->sheet < d->picture->sheets && d->sheet < CLI_SHEETS; d->sheet++)
        y = put_sheet(d, y);
    y += d->picture->sheets > CLI_SHEETS ? 2 * NOTE : NOTE;
    put_notes(d, y, plan);
    return y + (d->picture->sides == 2 ? 2 * NOTE : 4);
}

void cli_show_svg(FILE *to, const cli_picture *picture, const sherd_plan *plan)
{
    const int sides = picture->sides;
    const double width = 2 * MARGIN - 20 + sides * WIDE + (sides - 1) * GAP;
    drawing d = {.to = fopen("/dev/null", "we"), .picture = picture};

    d.left[0] = MARGIN;
    d.left[1] = MARGIN + WIDE + GAP;
    d.unit_x = WIDE / (double)(picture->columns ? picture->columns : 1);
    d.unit_y = grid_height(picture) / (double)(picture->rows ? picture->rows : 1);
    double height = d.to ? put_page(&d, plan) : 1000;
    if (d.to)
        fclose(d.to);
    d.to = to;
    put_head(to, width, height);
    put_page(&d, plan);
    fputs("</svg>\n", to);
}
