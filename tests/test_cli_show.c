/* SPDX-License-Identifier: Apache-2.0 */
/* sherd show: grids to scale, labels, what moves, no color where nobody sees it, and pictures that
 * are good XML. */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "cli.h"

#include "cases.h"
#include "paper.h"
#include "picture.h"
#include "plan/plan.h"
#include "show.h"
#include "search/plans.h"

/* ---- letters --------------------------------------------------------------------------------- */

#define DRAWN(arguments) sherd("show " arguments)

static void a_layout_is_a_grid_to_scale(void)
{
    const program_end *end = DRAWN("--mesh dp=2,tp=3 --shape 4x6 --placements S(0)S(1)");

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    CHECK(strstr(end->out, "[4(dp),6(tp)] on (dp=2,tp=3)\n       0") == end->out);
    /* Three equal columns, and a number where each begins. */
    const char *line = strstr(end->out, "     0 +");
    if (!CHECK(line != NULL))
        return;
    size_t wide = strcspn(line + 8, "+");
    CHECK(wide > 2 && line[8 + wide] == '+' && line[8 + 2 * wide + 1] == '+' &&
          line[8 + 3 * wide + 2] == '+' && line[8 + 3 * wide + 3] == '\n');
    for (int r = 0; r < 6; r++) {
        char rank[8];
        snprintf(rank, sizeof rank, " %d ", r);
        CHECK(strstr(line, rank) != NULL);
    }
}

/* 10 rows as 2 and 8: the second part is about four times as high. */
static void uneven_shards_are_uneven(void)
{
    const program_end *end = DRAWN("--mesh x=2 --shape 10x10 --placements S(0) --cuts 0:2,8");
    const char *a = strstr(end->out, "     0 +"), *b = strstr(end->out, "     2 +"),
               *c = strstr(end->out, "    10 +");
    int first = 0, second = 0;

    if (!CHECK(a && b && c))
        return;
    for (const char *p = a; p < b; p++)
        first += *p == '\n';
    for (const char *p = b; p < c; p++)
        second += *p == '\n';
    CHECK(first - 1 >= 1 && second - 1 >= 3 * (first - 1) && second - 1 <= 6 * (first - 1));
}

static void replicas_and_addends_are_named(void)
{
    const program_end *end = DRAWN("--mesh x=2,y=2 --shape 4 --placements RS(0)");

    CHECK(strstr(end->out, " 0,2 ") && strstr(end->out, " 1,3 "));
    CHECK(strstr(end->out, "hold the same") && !strstr(end->out, "addends"));
    end = DRAWN("--mesh x=2,y=4 --shape 4 --placements P(sum)R");
    CHECK(strstr(end->out, "0-3+4-7"));
    CHECK(strstr(end->out, "sum over x pending: ranks joined by + hold addends"));
    end = DRAWN("--mesh 4 --shape 5x2 --placements S(0)");
    CHECK(strstr(end->out, "no elements on 3\n"));
    end = DRAWN("--mesh 4 --shape 0x2 --placements S(0)");
    CHECK(strstr(end->out, "the tensor has no elements"));
    end = DRAWN("--mesh x=2,y=2 --shape scalar --placements P(max)R");
    CHECK(strstr(end->out, "0,1+2,3"));
    end = DRAWN("--mesh x=2,y=2,z=8 --shape 16x2 --placements S(1)RS(0)");
    CHECK_EQ(end->status, 0);
}

/* What has no room in its block gets a letter, and a line that says what it stands for. */
static void labels_without_room_get_letters(void)
{
    const program_end *end = DRAWN("--mesh x=16,y=3 --shape 2x16 --placements S(1)R");

    CHECK(strstr(end->out, "|  A|") || strstr(end->out, "| A |") || strstr(end->out, "|A  |") ||
          strstr(end->out, " 0-2 ") || strstr(end->out, "0-2"));
    end = DRAWN("--mesh x=16,y=2,z=2 --shape 2x16 --placements S(1)RP");
    CHECK(strstr(end->out, "A = 0,2+1,3\n") && strstr(end->out, "P = 60,62+61,63\n"));
}

static void higher_dims_are_sheets(void)
{
    const program_end *end = DRAWN("--mesh x=2,y=2 --shape 5x4x4 --placements S(0)S(2)");

    CHECK(strstr(end->out, "dim 0: 0 to 2\n") && strstr(end->out, "dim 0: 3 to 4\n"));
    end = DRAWN("--mesh x=32 --shape 32x4x4 --placements S(0)");
    CHECK(strstr(end->out, "and 20 more of these"));
}

static void what_must_move_is_said(void)
{
    const program_end *end = DRAWN("--mesh x=3 --shape 7x5 --from S(0) --to S(1)");

    CHECK(strstr(end->out, "from [7(x),5] on (x=3)\n") && strstr(end->out, "to   [7,5(x)] on"));
    CHECK(strstr(end->out, "24 B  1 -> 0  [3,6)x[0,2)\n"));
    CHECK(strstr(end->out, " 8 B  2 -> 1  [6,7)x[2,4)\n"));
    CHECK(strstr(end->out, "exact plan S(0)->S(1): 32 B received a rank, 88 B in all, the least "
                           "is 88 B\n"));
    end = DRAWN("--mesh x=2 --shape 8 --from R --to S(0)");
    CHECK(!strstr(end->out, "what must move"));
}

/* A pipe is no terminal; NO_COLOR and width are the environment's. */
static void color_is_for_terminals(void)
{
    const program_end *end = DRAWN("--mesh x=2 --shape 8x8 --placements S(0)");

    CHECK(!strchr(end->out, '\033'));
    setenv("COLUMNS", "40", 1);
    end = DRAWN("--mesh x=2 --shape 8x80 --placements S(1)");
    for (const char *p = end->out; *p; p += strcspn(p, "\n") + 1)
        CHECK((int)strcspn(p, "\n") <= 40);
    unsetenv("COLUMNS");
}

/* ---- inside ---------------------------------------------------------------------------------- */

/* A picture of two layouts on paper, without a world. */
static bool picture_of(cli_picture *out, paper *p, const sherd_layout *from, const sherd_layout *to)
{
    cli_problem problem = {.from = from, .to = to, .dtype = SHERD_F32, .diag = &p->diag};

    return cli_picture_make(out, &p->heap, &problem) == SHERD_OK;
}

/* Without a reduction, what pieces bring is the bound of the plan, for all pairs of layouts. */
static void pieces_add_up_to_the_bound(void)
{
    const sherd_layout *list[256];
    const int64_t shape[] = {5, 7};
    paper p;

    paper_open(&p, 6);
    const sherd_mesh *mesh = paper_mesh(&p, "x=3,y=2");
    int count = paper_layouts(mesh, 2, shape, false, list, LEN(list));
    CHECK(count > 8);
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++) {
            const sherd_plan *plan;
            cli_picture picture;
            cli_piece piece;
            int64_t total = 0, most = 0;
            CHECK(picture_of(&picture, &p, list[a], list[b]));
            for (int t = 0; t < picture.side[1].blocks; t++) {
                int64_t received = cli_block_received(&picture, &picture.side[1].block[t]);
                most = received > most ? received : most;
                for (int s = 0; s < picture.side[0].blocks; s++)
                    if (cli_piece_of(&piece, &picture, &picture.side[1].block[t], s))
                        total += piece.bytes_total;
            }
            CHECK_OK(sherd_plan_create(&plan, list[a], list[b], SHERD_F32, NULL));
            CHECK_EQ(total, sherd_plan_price_of(plan)->bound_total_bytes);
            CHECK_EQ(most, sherd_plan_price_of(plan)->bound_max_bytes);
            cli_picture_clear(&picture);
        }
    sherd__plans_clear(&p.space);
    paper_close(&p);
}

/* Every element of every sheet lies in exactly one block. */
static void blocks_cover_every_sheet_once(void)
{
    static const char *const layouts[] = {"[5(x),4,6(y)] on (x=3,y=2)",
                                          "[3(x:0,2,1),2(y),4] on (x=3,y=2)",
                                          "[7(x,y)] on (x=3,y=2)", "[] on (x=3,y=2)"};
    paper p;

    paper_open(&p, 6);
    for (int i = 0; i < LEN(layouts); i++) {
        cli_picture picture;
        cli_patch patch;
        CHECK(picture_of(&picture, &p, paper_layout(&p, layouts[i]), NULL));
        for (int64_t sheet = 0; sheet < picture.sheets; sheet++) {
            int64_t area = 0;
            for (int b = 0; b < picture.side[0].blocks; b++)
                if (cli_patch_of(&patch, &picture, sheet, &picture.side[0].block[b].box))
                    area += patch.rows * patch.columns;
            CHECK_EQ(area, picture.rows * picture.columns);
        }
        CHECK(picture.sheets > 0);
        cli_picture_clear(&picture);
    }
    paper_close(&p);
}

static void memory_may_be_short(void)
{
    paper p;
    int n = 0;
    bool good = false;

    paper_open(&p, 6);
    const sherd_layout *from = paper_layout(&p, "[5(x),4,6(y)] on (x=3,y=2)");
    const sherd_layout *to = paper_layout(&p, "[5,4(x),6] on (x=3,y=2)");
    for (; !good && n < 100; n++) {
        cli_picture picture;
        p.heap.allocations = 0;
        p.heap.fail_at = n + 1;
        good = picture_of(&picture, &p, from, to);
        CHECK(good || p.diag.status == SHERD_ENOMEM);
        cli_picture_clear(&picture);
    }
    CHECK(good && n > 5);
    p.heap.fail_at = 0;
    paper_close(&p);
}

static void color_marks_blocks_on_a_terminal(void)
{
    const cli_screen screen = {.width = 60, .color = true};
    cli_picture picture;
    paper p;
    char *drawn = NULL;
    size_t length = 0;

    paper_open(&p, 2);
    FILE *to = open_memstream(&drawn, &length);
    if (!CHECK(to && picture_of(&picture, &p, paper_layout(&p, "[8(x),8] on (x=2)"), NULL)))
        return;
    cli_show_text(to, &picture, NULL, &screen);
    fclose(to);
    int on = 0, off = 0;
    for (const char *s = drawn; (s = strstr(s, "\033[")) != NULL; s++) {
        on += strncmp(s, "\033[30;48;5;", 10) == 0;
        off += strncmp(s, "\033[0m", 4) == 0;
    }
    CHECK(on > 2 && on == off);
    free(drawn);
    cli_picture_clear(&picture);
    paper_close(&p);
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Length of a name; 0 if there is none. */
static size_t name_at(const char *p)
{
    return strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789:");
}

/* A tag's attributes name="value", no < or bare & in values; NULL if they are not. */
static const char *skip_attributes(const char *p)
{
    while (*p == ' ') {
        p += strspn(p, " ");
        size_t n = name_at(p);
        if (n == 0 || p[n] != '=' || p[n + 1] != '"')
            return NULL;
        p += n + 2;
        p += strcspn(p, "\"<&");
        if (*p++ != '"')
            return NULL;
    }
    return p;
}

/* Elements nest, attributes are quoted, text has no bare < & >; one root. */
static bool is_xml(const char *p)
{
    char open[16][32];
    int depth = 0, roots = 0;

    while (*p) {
        if (*p == '&' && strncmp(p, "&amp;", 5) && strncmp(p, "&lt;", 4) && strncmp(p, "&gt;", 4))
            return false;
        if (*p == '>' || (depth == 0 && *p != '<' && *p != '\n'))
            return false;
        if (*p != '<') {
            p++;
            continue;
        }
        bool closes = *++p == '/';
        p += closes;
        size_t n = name_at(p);
        if (n == 0 || n >= sizeof open[0] || (closes && depth == 0) || depth == 16)
            return false;
        if (closes && (strncmp(open[depth - 1], p, n) || open[depth - 1][n]))
            return false;
        if (!closes)
            snprintf(open[depth], sizeof open[0], "%.*s", (int)n, p);
        p = skip_attributes(p + n);
        if (!p)
            return false;
        bool empty = *p == '/';
        p += empty;
        if (*p++ != '>' || (closes && empty))
            return false;
        roots += !closes && depth == 0;
        depth += closes ? -1 : !empty;
    }
    return depth == 0 && roots == 1;
}

static int count_of(const char *in, const char *what)
{
    int n = 0;

    for (; (in = strstr(in, what)) != NULL; in++)
        n++;
    return n;
}

/* The picture of a move or layout; valid until the next one. */
static const char *picture(const char *arguments)
{
    static char drawn[1 << 20];
    char line[1024];
    int fd = memfd_create("svg", 0);

    snprintf(line, sizeof line, "show %s --svg /proc/self/fd/%d", arguments, fd);
    const program_end *end = sherd(line);
    if (!CHECK_EQ(end->status, 0) || !CHECK_TEXT(end->err, ""))
        fprintf(stderr, "%s\n", line);
    CHECK_TEXT(end->out, "");
    ssize_t n = pread(fd, drawn, sizeof drawn - 1, 0);
    drawn[n < 0 ? 0 : n] = '\0';
    close(fd);
    return drawn;
}

static void pictures_are_good_xml(void)
{
    static const char *const list[] = {
        "--mesh x=3 --shape 7x5 --from S(0) --to S(1)",
        "--mesh x=2,y=2 --shape 9x7 --from S(0)P --to S(1)S(0)",
        "--mesh x=4,y=2 --shape 8x8x8 --from S(0)S(2) --to S(0)[1]S(0)[0]",
        "--mesh 64 --shape 64x64 --from S(0) --to S(1)",
        "--mesh 4 --shape 10 --from S(0) --to R --planner graph",
        "--mesh 2 --to-mesh x=2@2,3 --shape 4x4 --from S(0) --to S(1)",
        "--mesh 2 --shape 0x4 --placements S(0)",
        "--mesh 2x2 --shape scalar --placements P(avg)R",
        "--mesh x=32 --shape 32x4x4 --placements S(0)",
        "--mesh x=16,y=8 --shape 16 --placements S(0)P",
    };

    for (int i = 0; i < LEN(list); i++)
        if (!CHECK(is_xml(picture(list[i]))))
            fprintf(stderr, "%s\n", list[i]);
    CHECK(!is_xml("<a><b></a></b>") && !is_xml("<a x=1/>") && !is_xml("<a>&</a>") &&
          !is_xml("<a/><b/>"));
}

/* Three blocks a side, six pieces that travel, each hatched with its bytes and an arrow, and the
 * sample of the legend. */
static void a_picture_has_all_blocks_and_pieces(void)
{
    const char *drawn = picture("--mesh x=3 --shape 7x5 --from S(0) --to S(1)");

    CHECK_EQ(count_of(drawn, "<rect class=\"block\""), 6);
    CHECK_EQ(count_of(drawn, "<rect class=\"moved\""), 7);
    CHECK_EQ(count_of(drawn, "<path class=\"arrow\""), 6);
    CHECK_EQ(count_of(drawn, ">rank 2</text>"), 2);
    CHECK_EQ(count_of(drawn, ">24 B from 0</text>"), 1);
    CHECK_EQ(count_of(drawn, ">12 B</text>"), 2);
    CHECK(strstr(drawn, "S(0)-&gt;S(1): 32 B received a rank"));
    CHECK(strstr(drawn, "font-family"));
    /* Columns 2, 2 and 1 of 5, to scale: two fifths and a fifth of the same width. */
    CHECK_EQ(count_of(drawn, "width=\"120.0\" height=\"300.0\""), 2);
    CHECK_EQ(count_of(drawn, "width=\"60.0\" height=\"300.0\""), 1);
    drawn = picture("--mesh x=2 --shape 4 --from P --to R");
    CHECK_EQ(count_of(drawn, "<rect class=\"pending\""), 1);
    CHECK(strstr(drawn, "sum over x pending"));
}

static void the_readme_shows_what_the_command_draws(void)
{
    const char *drawn = picture("--mesh x=3 --shape 7x5 --from S(0) --to S(1)");
    static char kept[1 << 20];
    FILE *from = fopen(SHERD_SOURCE_DIR "/docs/move.svg", "re");

    if (!CHECK(from != NULL))
        return;
    kept[fread(kept, 1, sizeof kept - 1, from)] = '\0';
    fclose(from);
    CHECK_TEXT(kept, drawn);
}

/* The same picture, and no file of that name. */
static void a_picture_goes_to_standard_output_too(void)
{
    char drawn[4096];

    snprintf(drawn, sizeof drawn, "%s", picture("[4]on(x=2)"));
    const program_end *end = sherd("show [4]on(x=2) --svg -");
    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->out, drawn);
    CHECK(access("-", F_OK) != 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refusals(void)
{
    static const refusal list[] = {
        {"show", 2, "show what?"},
        {"show [4(x)]", 2, "--layout: column 7"},
        {"show [4(y)]on(x=2)", 2, "--layout: column"},
        {"show --mesh 2 --placements R", 2, "--placements: expected --mesh and --shape with it"},
        {"show --mesh 2 --shape 4 --to R", 2, "--to: expected --from with it"},
        {"show --mesh 2 --shape 4 --placements R --from R", 2, "--from: a layout is given already"},
        {"show [4]on(x=2) --mesh 2 --shape 4 --placements R", 2, "--placements: a layout is given"},
        {"show --mesh 2 --shape 4 --placements S(1)", 2, "--placements: column 3"},
        {"show --mesh 2000 --shape 4 --placements R", 1, "2000 ranks are too many for a picture"},
        {"show --mesh 2 --shape 4 --from S(0) --to P", 1, "--to: "},
        {"show [4]on(x=2) --svg /no/such/place.svg", 1, "--svg: \"/no/such/place.svg\" can not be"},
        {"show [4]on(x=2) --json", 2, "there is no option \"--json\""},
        {"show [4]on(x=2) [5]on(x=2)", 2, "there is no option"},
        {"show --flattened x --mesh 2 --shape 4 --placements R", 2, "--flattened: column 1"},
        {"show [4]on(x=2) --mesh 2", 2, "--mesh: a layout by its full text has no use for it"},
        {"show --mesh 2 --shape 4 --placements R --price arena", 2,
         "--price: expected --from and --to with it"},
        {"show --mesh 2 --shape 4 --from R --to R --cuts 0:4,0", 2,
         "--cuts: expected --placements with it"},
        {"show --mesh 2 --shape 4 --placements R --from-cuts 0:4,0", 2,
         "--from-cuts: expected --from with it"},
        {"help plan layout", 2, "help: expected one command, not \"layout\" too"},
        {"--version --json", 2, "--version: expected nothing else, not \"--json\" too"},
        {"show --flattened x", 2, "--flattened: expected --mesh with it"},
    };

    for (int i = 0; i < LEN(list); i++)
        check_refusal(&list[i]);
}

/* A tensor of 2^62 - 1 elements has four times as many bytes: the figures stop where those of plans
 * do. */
static void bytes_beyond_all_numbers_stop_at_the_last(void)
{
    const program_end *end = DRAWN("--mesh 2 --shape 4611686018427387903 --from S(0) --to R");

    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "4 EiB or more  0 -> 0,1") &&
          strstr(end->out, "4 EiB or more  1 -> 0,1"));
    CHECK(!strstr(end->out, "-9") && !strstr(end->out, "8 EiB"));
}

static const check_test tests[] = {
    {TEST(a_layout_is_a_grid_to_scale)},
    {TEST(uneven_shards_are_uneven)},
    {TEST(replicas_and_addends_are_named)},
    {TEST(labels_without_room_get_letters)},
    {TEST(higher_dims_are_sheets)},
    {TEST(what_must_move_is_said)},
    {TEST(a_picture_goes_to_standard_output_too)},
    {TEST(bytes_beyond_all_numbers_stop_at_the_last)},
    {TEST(color_is_for_terminals)},
    {TEST(pieces_add_up_to_the_bound)},
    {TEST(blocks_cover_every_sheet_once)},
    {TEST(memory_may_be_short)},
    {TEST(color_marks_blocks_on_a_terminal)},
    {TEST(pictures_are_good_xml)},
    {TEST(a_picture_has_all_blocks_and_pieces)},
    {TEST(the_readme_shows_what_the_command_draws)},
    {TEST(refusals)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
