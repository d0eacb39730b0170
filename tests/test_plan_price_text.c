/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Price files: numbers come out as the nearest integers whatever the form they are written in,
 * what does not fit is refused, and what is wrong names its line and column.
 */
#define CHECK_PURE
#include "check.h"
#include "price/price_text.h"

static sherd_status read_price(sherd_price *out, sherd__diag *diag, const char *text)
{
    *diag = (sherd__diag){.rank = -1};
    return sherd__price_read(out, diag, text);
}

static const sherd_link *find(const sherd_price *price, const char *axis)
{
    for (int i = 0; i < price->links; i++)
        if (strcmp(price->link[i].axis, axis) == 0)
            return &price->link[i];
    return NULL;
}

static void a_file_is_one_line_an_axis(void)
{
    static const char text[] = "# comment\n"
                               "\n"
                               "tp 1e-6 1e-11 2e-12 # inside a node\n"
                               "  \t # blanks\r\n"
                               "\tdp_2\t2.5E-6  .05e-9\t0\r\n"
                               "*\t3 1.5e-3 00.00#at once";
    sherd_price price;
    sherd__diag diag;

    CHECK_OK(read_price(&price, &diag, text));
    CHECK_EQ(price.kind, SHERD_PRICE_LINKS);
    CHECK_EQ(price.links, 3);
    CHECK_EQ(price.per_host, 0);
    CHECK_EQ(find(&price, "tp")->alpha_picoseconds, 1000000);
    CHECK_EQ(find(&price, "tp")->beta_femtoseconds, 10000);
    CHECK_EQ(find(&price, "tp")->gamma_femtoseconds, 2000);
    CHECK_EQ(find(&price, "dp_2")->alpha_picoseconds, 2500000);
    CHECK_EQ(find(&price, "dp_2")->beta_femtoseconds, 50000);
    CHECK_EQ(find(&price, "dp_2")->gamma_femtoseconds, 0);
    CHECK_EQ(find(&price, "*")->alpha_picoseconds, 3000000000000);
    CHECK_EQ(find(&price, "*")->beta_femtoseconds, 1500000000000);
    CHECK_EQ(find(&price, "*")->gamma_femtoseconds, 0);
}

/* The words alone set what they name; with numbers they are axes. */
static void words_are_lines_of_their_own(void)
{
    sherd_price price;
    sherd__diag diag;

    CHECK_OK(read_price(&price, &diag, "x 1 1 1\n\t overlap # all of them\r\ny 2 2 2"));
    CHECK(price.overlap && price.links == 2);
    CHECK_OK(read_price(&price, &diag, "overlap 1 1 1"));
    CHECK(!price.overlap && price.links == 1);
    CHECK_OK(read_price(&price, &diag, "overlap\noverlap 1 1 1\noverlaps 2 1 1\noverlap"));
    CHECK(price.overlap && !price.straight && price.links == 2);
    CHECK_OK(read_price(&price, &diag, "straight\nx 1 1 1\nstraight 2 1 1 # an axis"));
    CHECK(price.straight && !price.overlap && price.links == 2);
    CHECK_OK(read_price(&price, &diag, "straight 1 1 1\noverlap\nstraighter 1 1 1"));
    CHECK(!price.straight && price.overlap && price.links == 2);
}

static void an_axis_may_have_lines_for_sizes(void)
{
    sherd_price price;
    sherd__diag diag;

    CHECK_OK(read_price(&price, &diag,
                        "x 1 1 1 upto 4096 # small\nx 2 1 1\n* 3 1 1 upto 1e6\n* 4 1 1 upto "
                        "9000000000\nupto 5 1 1 upto 1"));
    CHECK_EQ(price.links, 5);
    CHECK_EQ(price.link[0].upto_bytes, 4096);
    CHECK_EQ(price.link[1].upto_bytes, 0);
    CHECK_EQ(price.link[2].upto_bytes, 1000000);
    CHECK_EQ(price.link[3].upto_bytes, 9000000000);
    CHECK_EQ(price.link[4].upto_bytes, 1);
    CHECK_TEXT(price.link[4].axis, "upto");
}

/* Alpha of a file with this number, in picoseconds; -1 if it was refused. */
static int64_t alpha(const char *number)
{
    char text[512];
    sherd_price price;
    sherd__diag diag;

    snprintf(text, sizeof text, "x %s 0 0", number);
    return read_price(&price, &diag, text) == SHERD_OK ? price.link[0].alpha_picoseconds : -1;
}

static void numbers_are_rounded_once_to_nearest(void)
{
    static const struct {
        const char *number;
        int64_t picoseconds;
    } cases[] = {
        {"1", 1000000000000},
        {"1.", 1000000000000},
        {".1", 100000000000},
        {"1e0", 1000000000000},
        {"1e+0", 1000000000000},
        {"1E-12", 1},
        {"1000e-15", 1},
        {"0.000000000001", 1},
        {"1.5e-12", 2}, /* ties go to even */
        {"2.5e-12", 2},
        {"3.5e-12", 4},
        {"0.5e-12", 0},
        {"2.50000000000000000000000000000000000000000000000000000000000000001e-12", 3},
        {"2.49999999999999999999999999999999999999999999999999999999999999999e-12", 2},
        {"0.50000000000000000000000000000001e-12", 1},
        {"0.05e-12", 0},
        {"0.09e-12", 0},
        {"9.5e-12", 10},
        {"99999999999.5e-23", 1},                      /* 0.999999999995 */
        {"0.1e-6", 100000},                            /* a binary fraction would not be exact */
        {"4611686.018427387903", 4611686018427387903}, /* 2^62 - 1 */
        {"4611686.0184273879034", 4611686018427387903},
        {"4611686.0184273879035", -1}, /* rounds to 2^62 */
        {"4611686.018427387904", -1},
        {"1e7", -1},
        {"1e400", -1},
        {"1e99999999999999999999999999", -1},
        {"0e99999999999999999999999999", 0},
        {"1e-99999999999999999999999999", 0},
        {"0000000000000000000000000000000000000000000000000000001e-12", 1},
        {"0.0000000000000000000000000000000000000000000001e34", 1},
        {"100000000000000000000000000000000000000000000000000e-62", 1},
    };

    for (int i = 0; i < LEN(cases); i++)
        if (!CHECK_EQ(alpha(cases[i].number), cases[i].picoseconds))
            fprintf(stderr, "%s\n", cases[i].number);
}

/* Every way to write an integer of picoseconds gives it back, wherever the point stands. */
static void the_point_may_stand_anywhere(void)
{
    uint64_t dice = 11;

    for (int k = 0; k < 20000; k++) {
        char digits[32], number[96];
        int64_t value = 0;
        for (int n = roll(&dice, 18); n >= 0; n--)
            value = value * 10 + roll(&dice, 10);
        int length = snprintf(digits, sizeof digits, "%lld", (long long)value);
        int zeros = roll(&dice, 5), point = roll(&dice, length + 1);
        snprintf(number, sizeof number, "%.*s%.*s.%s%.*se%d", zeros, "00000", point, digits,
                 digits + point, zeros, "00000", length - point - 12);
        if (!CHECK_EQ(alpha(number), value))
            fprintf(stderr, "%s\n", number);
    }
}

static void what_is_wrong_names_line_and_column(void)
{
    static const struct {
        const char *text;
        int line, column;
        const char *expected;
    } cases[] = {
        {"", 1, 1, "a line: axis"},
        {"# nothing\n\n", 3, 1, "a line: axis"},
        {"x", 1, 2, "alpha"},
        {"x 1", 1, 4, "beta"},
        {"x 1 1", 1, 6, "gamma"},
        {"x 1 1 1 1", 1, 9, "end of the line"},
        {"x 1 1 1 upto", 1, 13, "bytes of a tensor"},
        {"x 1 1 1 upto fish", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto 0", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto 0.25", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto 1e19", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto4", 1, 13, "bytes of a tensor"},
        {"x 1 1 1 upto -4", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto nan", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto 4611686018427387904", 1, 14, "bytes of a tensor"},
        {"x 1 1 1 upto 4 upto 5", 1, 16, "end of the line"},
        {"x 1 1 1 upto 4\nx 2 2 2 upto 4.25", 2, 1, "new axis, or size"},
        {"x 1 1 1 upto 4 4", 1, 16, "end of the line"},
        {"x 1 1 1 upto 4\nx 2 2 2\nx 1 1 1 upto 4", 3, 1, "new axis, or size"},
        {"x 1 1\n1", 1, 6, "gamma"}, /* a line ends where it ends */
        {"y 1 1 1\nx 1 1 -1", 2, 7, "gamma"},
        {"x -1 1 1", 1, 3, "alpha"},
        {"x +1 1 1", 1, 3, "alpha"},
        {"x 1,5 1 1", 1, 3, "alpha"},
        {"x 1e 1 1", 1, 3, "alpha"},
        {"x 1e+ 1 1", 1, 3, "alpha"},
        {"x 0x10 1 1", 1, 3, "alpha"},
        {"x . 1 1", 1, 3, "alpha"},
        {"x inf 1 1", 1, 3, "alpha"},
        {"x nan 1 1", 1, 3, "alpha"},
        {"x 1.2.3 1 1", 1, 3, "alpha"},
        {"x 1 1e4 1", 1, 5, "fewer seconds"},
        {"\n  x 4611687 1 1", 2, 5, "fewer seconds"},
        {"x-1 1 1", 1, 2, "a blank and alpha"},
        {"*1 1 1", 1, 2, "a blank and alpha"},
        {"2 1 1 1", 1, 1, "name of an axis"},
        {"overlap 1", 1, 10, "beta"},
        {"overlap", 1, 1, "a line: axis alpha"},
        {"straight x", 1, 10, "alpha"},
        {"-", 1, 1, "name of an axis"},
        {"abcdefghijklmnopqrstuvwxyzabcdef 1 1 1", 1, 1, "at most 31"},
        {"x 1 1 1\ny 1 1 1\n x 1 1 1", 3, 2, "new axis"},
        {"* 1 1 1\n* 1 1 1", 2, 1, "new axis"},
    };
    sherd__diag diag;

    for (int i = 0; i < LEN(cases); i++) {
        sherd_price price = {.links = 77};
        char place[64];
        snprintf(place, sizeof place, "sherd_price_parse: line %d, column %d of \"", cases[i].line,
                 cases[i].column);
        CHECK_EQ(read_price(&price, &diag, cases[i].text), SHERD_EINVAL);
        CHECK_EQ(price.links, 77);
        CHECK_EQ(diag.column, cases[i].column);
        CHECK(diag.source == cases[i].text);
        if (!CHECK(strstr(diag.text, place) == diag.text) ||
            !CHECK(strstr(diag.text, cases[i].expected)) || !CHECK(!strchr(diag.text, '\n')))
            fprintf(stderr, "%s: %s\n", cases[i].text, diag.text);
    }
}

static void there_is_room_for_so_many_lines(void)
{
    char text[SHERD_MAX_LINKS * 32 + 32] = "";
    sherd_price price;
    sherd__diag diag;

    for (int i = 0; i < SHERD_MAX_LINKS; i++)
        snprintf(text + strlen(text), 32, "%c 1 1 1 upto %d\n", "abcdefgh*"[i % 9], i + 1);
    CHECK_OK(read_price(&price, &diag, text));
    CHECK_EQ(price.links, SHERD_MAX_LINKS);
    strcat(text, "#\ni 1");
    CHECK_EQ(read_price(&price, &diag, text), SHERD_EINVAL);
    CHECK(strstr(diag.text, "line 38, column 1") && strstr(diag.text, "no more lines"));
}

static void a_long_line_is_cut_in_the_message(void)
{
    char text[3000];
    sherd_price price;
    sherd__diag diag;

    memset(text, ' ', sizeof text);
    memcpy(text, "# first\nx 1 1", 13);
    text[2000] = '!';
    memcpy(text + sizeof text - 10, "\nlast one", 10);
    CHECK_EQ(read_price(&price, &diag, text), SHERD_EINVAL);
    CHECK_EQ(diag.column, 2000 - 8 + 1);
    CHECK(strstr(diag.text, "line 2, column 1993 of \"x 1 1 ") && strstr(diag.text, "gamma"));
    CHECK(!strstr(diag.text, "last") && !strstr(diag.text, "first"));
}

static void the_file_of_the_manual_is_good(void)
{
    FILE *file = fopen(SHERD_SOURCE_DIR "/docs/prices/8-gpus-a-node.txt", "r");
    char text[8192] = "";
    sherd_price price;
    sherd__diag diag;

    if (CHECK(file != NULL)) {
        CHECK(fread(text, 1, sizeof text - 1, file) < sizeof text - 1);
        fclose(file);
    }
    if (!CHECK_OK(read_price(&price, &diag, text)))
        fprintf(stderr, "%s\n", diag.text);
    const sherd_link *near = find(&price, "tp"), *far = find(&price, "*");
    CHECK_EQ(price.links, 2);
    if (!CHECK(near && far))
        return;
    CHECK(near->alpha_picoseconds > 0 && near->alpha_picoseconds < far->alpha_picoseconds);
    /* 0.22 of the rate, as the file says */
    CHECK_NEAR((double)near->beta_femtoseconds / (double)far->beta_femtoseconds, 0.22, 0.0005);
    CHECK(near->gamma_femtoseconds > 0 && near->gamma_femtoseconds == far->gamma_femtoseconds);
}

static const check_test tests[] = {
    {TEST(a_file_is_one_line_an_axis)},          {TEST(words_are_lines_of_their_own)},
    {TEST(numbers_are_rounded_once_to_nearest)}, {TEST(the_point_may_stand_anywhere)},
    {TEST(what_is_wrong_names_line_and_column)}, {TEST(a_long_line_is_cut_in_the_message)},
    {TEST(the_file_of_the_manual_is_good)},      {TEST(an_axis_may_have_lines_for_sizes)},
    {TEST(there_is_room_for_so_many_lines)},
};
CHECK_MAIN(tests)
