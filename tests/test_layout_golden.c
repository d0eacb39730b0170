/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts as PyTorch computes them (tests/data/layouts.txt, written by tools/golden.py): every
 * rank's box of every plain and every reordered layout, the shard orders that _S placements decode
 * to, and the _S placements that are none and must be refused.
 */
#define CHECK_PURE
#include "paper.h"

enum { WORLD = 64 };

/* One line of the file. */
typedef struct golden {
    char line[2048];
    const char *kind, *mesh, *shape, *placements, *other, *boxes;
    int ndim;
    int64_t size[SHERD_MAX_DIMS];
} golden;

/* The next case of this kind; false at the end of the file. */
static bool next_case(FILE *file, const char *kind, golden *g, paper *p)
{
    char *save;

    while (fgets(g->line, sizeof g->line, file)) {
        g->kind = strtok_r(g->line, " \n", &save);
        if (!g->kind || strcmp(g->kind, kind) != 0)
            continue;
        g->mesh = strtok_r(NULL, " \n", &save);
        g->shape = strtok_r(NULL, " \n", &save);
        g->placements = strtok_r(NULL, " \n", &save);
        g->other = strtok_r(NULL, " \n", &save);
        CHECK_TEXT(strtok_r(NULL, " \n", &save), "=");
        g->boxes = save;
        CHECK_OK(sherd__shape_read(g->size, &g->ndim, &p->diag, "golden", g->shape));
        return true;
    }
    return false;
}

/* Read every case of a kind on paper of its own; how many there were. */
static int each_case(const char *kind, void (*run)(paper *p, const golden *g))
{
    FILE *file = fopen(SHERD_SOURCE_DIR "/tests/data/layouts.txt", "r");
    int count = 0;
    golden g;
    paper p;

    if (!CHECK(file != NULL))
        return 0;
    paper_open(&p, WORLD);
    for (; next_case(file, kind, &g, &p); count++) {
        int before = atomic_load(&check_state->failures);
        run(&p, &g);
        if (atomic_load(&check_state->failures) != before)
            fprintf(stderr, "%s %s %s %s\n", kind, g.mesh, g.shape, g.placements);
    }
    paper_close(&p);
    fclose(file);
    return count;
}

static sherd_status read_layout(const sherd_layout **out, paper *p, const golden *g,
                                const char *placements)
{
    return sherd_layout_parse_placements(out, paper_mesh(p, g->mesh), g->ndim, g->size, placements,
                                         NULL);
}

/* "2+3,-+0": offset and size of each dim; "-": PyTorch does not say where an empty shard lies. */
static const char *check_box(const sherd_layout *layout, int rank, const char *text)
{
    sherd_box box = sherd_layout_box(layout, rank, 0);
    char *end = (char *)(uintptr_t)text;

    CHECK_EQ(box.ndim, layout->spec.ndim);
    for (int d = 0; d < box.ndim; d++) {
        bool empty = *end == '-';
        int64_t offset = empty ? box.offset[d] : strtoll(end, &end, 10);
        end += empty;
        CHECK_EQ(*end, '+');
        int64_t size = strtoll(end + 1, &end, 10);
        end += *end == ',' || *end == ' ';
        CHECK_EQ(box.offset[d], offset);
        CHECK_EQ(box.size[d], size);
        CHECK(box.offset[d] >= 0 && box.offset[d] + box.size[d] <= layout->spec.shape[d]);
    }
    return end;
}

static void check_boxes(const sherd_layout *layout, const golden *g)
{
    const char *at = g->boxes;

    for (int rank = 0; rank < sherd_mesh_ranks(layout->spec.mesh); rank++)
        at = check_box(layout, rank, at);
    CHECK(*at == '\n' || *at == '\0');
}

static void try_plain(paper *p, const golden *g)
{
    const sherd_layout *layout;

    CHECK_TEXT(g->other, "-");
    if (CHECK_OK(read_layout(&layout, p, g, g->placements)))
        check_boxes(layout, g);
}

static void plain_layouts_have_the_same_boxes(void)
{
    CHECK_EQ(each_case("plain", try_plain), 99);
}

/* Orders are as PyTorch's redistribute makes them; written with _S they are the same layout. */
static void try_order(paper *p, const golden *g)
{
    const sherd_layout *layout, *strided;

    if (!CHECK_OK(read_layout(&layout, p, g, g->placements)))
        return;
    check_boxes(layout, g);
    CHECK_TEXT(sherd_layout_placements(layout), g->placements);
    CHECK(strchr(g->other, '_') != NULL);
    CHECK_OK(read_layout(&strided, p, g, g->other));
    CHECK(strided == layout);
}

static void shard_orders_have_the_same_boxes(void)
{
    CHECK_EQ(each_case("order", try_order), 64);
}

/*
 * PyTorch decodes the same orders. (Where shards are uneven, its boxes of _S placements are in some
 * cases not those of the order that it decodes them to, for example 7 over 3x2 with _S(0,2)S(0);
 * none of these is stored.)
 */
static void try_strided(paper *p, const golden *g)
{
    const sherd_layout *layout, *order;

    if (strcmp(g->other, "none") == 0)
        return;
    if (!CHECK_OK(read_layout(&layout, p, g, g->placements)) ||
        !CHECK_OK(read_layout(&order, p, g, g->other)))
        return;
    CHECK(layout == order);
    check_boxes(layout, g);
}

static void strided_placements_are_the_orders_that_they_decode_to(void)
{
    CHECK_EQ(each_case("strided", try_strided), 200);
}

static void try_refused(paper *p, const golden *g)
{
    const sherd_layout *layout;

    if (strcmp(g->other, "none") != 0)
        return;
    CHECK_EQ(read_layout(&layout, p, g, g->placements), SHERD_ENOTSUP);
    CHECK(layout == NULL);
    CHECK(strstr(p->diag.text, "is not a shard order") &&
          strstr(p->diag.text, "more than one box"));
    CHECK(p->diag.source == g->placements);
    CHECK(p->diag.column > 0 && strncmp(g->placements + p->diag.column - 1, "_S", 2) == 0);
}

static void strided_placements_without_an_order_are_refused(void)
{
    CHECK_EQ(each_case("strided", try_refused), 200);
}

static const check_test tests[] = {
    {TEST(plain_layouts_have_the_same_boxes)},
    {TEST(shard_orders_have_the_same_boxes)},
    {TEST(strided_placements_are_the_orders_that_they_decode_to)},
    {TEST(strided_placements_without_an_order_are_refused)},
};
CHECK_MAIN(tests)
