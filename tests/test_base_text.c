/* SPDX-License-Identifier: Apache-2.0 */
/* The writer never leaves its room and goes on counting; the scanner knows its column; error texts
 * are one line. */
#define CHECK_PURE
#include "check.h"
#include "base/diag.h"
#include "base/text.h"

#include <locale.h>
#include <math.h>

static void the_writer_measures_and_cuts(void)
{
    static const char whole[] = "layout [12(x),3] on (x=4)";

    for (size_t room = 0; room <= sizeof whole + 3; room++) {
        char text[64];
        memset(text, '#', sizeof text);
        sherd__writer w = {.at = text, .room = room};
        sherd__write(&w, "layout [%d(%s)", 12, "x");
        sherd__write(&w, "%s", "");
        sherd__write(&w, ",%d] on (x=%d)", 3, 4);
        CHECK_EQ(w.length, strlen(whole));
        size_t kept = room == 0 ? 0 : room - 1 < strlen(whole) ? room - 1 : strlen(whole);
        CHECK(room == 0 || strlen(text) == kept);
        CHECK_EQ(strncmp(text, whole, kept), 0);
        for (size_t i = room; i < sizeof text; i++)
            CHECK_EQ(text[i], '#');
    }
}

static void the_writer_measures_with_no_room_at_all(void)
{
    sherd__writer w = {0};

    sherd__write(&w, "%d", 12345);
    sherd__write(&w, "%s", "abc");
    CHECK_EQ(w.length, 8);
}

static void a_quoted_text_is_json_in_one_line(void)
{
    char text[1024], longer[700];
    sherd__writer w = {.at = text, .room = sizeof text};

    sherd__write_quoted(&w, "a \"b\" c\\d\ne");
    CHECK_TEXT(text, "\"a \\\"b\\\" c\\\\d e\"");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    w = (sherd__writer){.at = text, .room = sizeof text};
    sherd__write_quoted(&w, longer);
    CHECK_EQ(w.length, 512 + 2);
    CHECK(strstr(text, "x...x"));
}

/* The middle goes; what is left is good UTF-8. */
static void a_text_that_is_too_long_keeps_both_ends(void)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"elevenchars", "elevenchars"},
        {"twelve_chars", "twel...hars"},
        {"abcdefghijklmnopqrstuvwxyz", "abcd...wxyz"},
        {"abc\xc3\xa4xxxxxxx\xc3\xa4xyz", "abc...xyz"},
        {"\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", "\xe2\x82\xac...\xe2\x82\xac"},
    };
    char out[12];

    for (int i = 0; i < LEN(cases); i++) {
        sherd__fit_text(out, sizeof out, cases[i][0]);
        CHECK_TEXT(out, cases[i][1]);
    }
}

static void check_numbers(void)
{
    static const char *const texts[] = {"0",      "1.5",       "-2.5e-07", "3e+20",
                                        "1e+300", "0.0009765", "1.5e+13",  "123456.789"};
    static const char *const none[] = {"", ".", "e5", "x1", "+", ",5", "inf", "nan"};
    static const char *const ends[] = {"1.5,", "2x", "3e", "4.5.6", "7e+", "8e 5", "9e+\n1"};
    static const int used[] = {3, 1, 1, 3, 1, 1, 1};
    char text[64];
    double value;

    for (int i = 0; i < LEN(texts); i++) {
        sherd__writer w = {.at = text, .room = sizeof text};
        CHECK_EQ(*sherd__read_number(&value, texts[i]), 0);
        sherd__write_number(&w, 12, value);
        CHECK_TEXT(text, texts[i]);
    }
    for (int i = 0; i < LEN(none); i++)
        CHECK(sherd__read_number(&value, none[i]) == none[i]);
    for (int i = 0; i < LEN(ends); i++)
        CHECK_EQ(sherd__read_number(&value, ends[i]) - ends[i], used[i]);
    CHECK(*sherd__read_number(&value, "1e999999999999") == 0 && isinf(value));
    CHECK(*sherd__read_number(&value, "0.1") == 0 && value == 0.1);
}

/* Of machines that have them; of those without, only that of C is tested. */
static void numbers_read_alike_in_all_locales(void)
{
    static const char *const names[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE"};

    for (int i = 0; i < LEN(names); i++)
        if (setlocale(LC_NUMERIC, names[i]))
            check_numbers();
    setlocale(LC_NUMERIC, "C");
}

static void the_scanner_takes_words_and_numbers(void)
{
    const char *text = "  f32[ 4096 (x_1, y)]\n";
    sherd__scanner s = {text, text};
    char name[8];
    int64_t n = -1;

    CHECK_EQ(sherd__column(&s), 1);
    CHECK(!sherd__take(&s, "f64"));
    CHECK(sherd__take(&s, "f32"));
    CHECK_EQ(sherd__column(&s), 6);
    CHECK(sherd__take(&s, "["));
    CHECK(!sherd__take_name(&s, name, sizeof name)); /* a digit begins no name */
    CHECK(sherd__take_integer(&s, &n) && n == 4096);
    CHECK(!sherd__take_integer(&s, &n));
    CHECK(sherd__take(&s, "("));
    CHECK(sherd__take_name(&s, name, sizeof name));
    CHECK_TEXT(name, "x_1");
    CHECK(sherd__take(&s, ","));
    CHECK(sherd__take_name(&s, name, sizeof name));
    CHECK_TEXT(name, "y");
    CHECK(!sherd__at_end(&s));
    CHECK(sherd__take(&s, ")]"));
    CHECK(sherd__at_end(&s));
    CHECK(!sherd__take(&s, "x") && !sherd__take_integer(&s, &n) &&
          !sherd__take_name(&s, name, sizeof name));
}

static void integers_stop_at_the_limit(void)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"007", true, 7},
        {"4611686018427387903", true, 4611686018427387903}, /* 2^62 - 1 */
        {"4611686018427387904", false, 0},
        {"99999999999999999999999999", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {"", false, 0},
        {"x", false, 0},
    };

    for (int i = 0; i < LEN(cases); i++) {
        sherd__scanner s = {cases[i].text, cases[i].text};
        int64_t n = -5;
        CHECK_EQ(sherd__take_integer(&s, &n), cases[i].good);
        CHECK_EQ(n, cases[i].good ? cases[i].value : -5);
        CHECK(cases[i].good || s.at == s.text); /* what was not taken is still there */
    }
}

static void names_must_fit_their_room(void)
{
    const char *text = "abcd";
    sherd__scanner s = {text, text};
    char name[5];

    CHECK(!sherd__take_name(&s, name, 0));
    CHECK(!sherd__take_name(&s, name, 4));
    CHECK(s.at == text);
    CHECK(sherd__take_name(&s, name, 5));
    CHECK_TEXT(name, "abcd");
}

static void an_error_names_its_rank(void)
{
    sherd__diag diag = {.rank = 2};

    CHECK_EQ(sherd__fail(&diag, SHERD_EINVAL, "sherd_matmul: %s has %d dims", "a", 3),
             SHERD_EINVAL);
    CHECK_EQ(diag.status, SHERD_EINVAL);
    CHECK_TEXT(diag.text, "rank 2: sherd_matmul: a has 3 dims");
    diag.rank = -1;
    CHECK_EQ(sherd__no_memory(&diag, "sherd_add"), SHERD_ENOMEM);
    CHECK_TEXT(diag.text, "sherd_add: out of memory");
}

static void an_error_at_a_place_keeps_the_place(void)
{
    sherd__diag diag = {.rank = -1};
    const char *text = "2xy";
    sherd__scanner s = {text, text + 2};

    CHECK_EQ(sherd__expected(&diag, "sherd_mesh_parse", &s, "an extent >= %d", 1), SHERD_EINVAL);
    CHECK_TEXT(diag.text, "sherd_mesh_parse: column 3 of \"2xy\": expected an extent >= 1");
    CHECK_EQ(diag.column, 3);
    CHECK(diag.source == text);
    CHECK_EQ(sherd__fail_at(&diag, SHERD_ELIMIT, "f", &s, "too much"), SHERD_ELIMIT);
    CHECK_TEXT(diag.text, "f: column 3 of \"2xy\": too much");
    CHECK_EQ(diag.column, 3);
    sherd__fail(&diag, SHERD_EINVAL, "elsewhere");
    CHECK_EQ(diag.column, 0);
    CHECK(diag.source == NULL);
}

/* What is shown of a text may be cut in the middle of a character. */
static void an_error_is_good_utf8(void)
{
    static const char *const texts[][2] = {
        {"na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80", NULL}, /* all good */
        {"a\xc3", "a?"},
        {"\xe2\x82", "??"},
        {"\xe2\x82\"", "??\""},
        {"\xf0\x9f\x98.", "???."},
        {"\x80\xbf", "??"},
        {"\xc0\xaf", "??"},           /* too long a form */
        {"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond the last character */
        {"\xf8\x88\x80\x80\x80", "?????"},
        {"a\x7f"
         "b",
         "a b"},
    };
    sherd__diag diag = {.rank = -1};

    for (int i = 0; i < LEN(texts); i++) {
        sherd__fail(&diag, SHERD_EINVAL, "%s", texts[i][0]);
        CHECK_TEXT(diag.text, texts[i][1] ? texts[i][1] : texts[i][0]);
    }
}

static void an_error_is_one_line_that_fits(void)
{
    char large[2 * SHERD_ERROR_BYTES];
    sherd__diag diag = {.rank = 1000000};

    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    large[3] = '\n';
    large[5] = '\t';
    CHECK_EQ(sherd__fail(&diag, SHERD_ELIMIT, "%s", large), SHERD_ELIMIT);
    CHECK_EQ(strlen(diag.text), SHERD_ERROR_BYTES - 1);
    CHECK(!strchr(diag.text, '\n') && !strchr(diag.text, '\t'));
    CHECK_EQ(strncmp(diag.text, "rank 1000000: xxx x xx", 22), 0);
}

static const check_test tests[] = {
    {TEST(the_writer_measures_and_cuts)},
    {TEST(the_writer_measures_with_no_room_at_all)},
    {TEST(a_quoted_text_is_json_in_one_line)},
    {TEST(a_text_that_is_too_long_keeps_both_ends)},
    {TEST(numbers_read_alike_in_all_locales)},
    {TEST(the_scanner_takes_words_and_numbers)},
    {TEST(integers_stop_at_the_limit)},
    {TEST(names_must_fit_their_room)},
    {TEST(an_error_names_its_rank)},
    {TEST(an_error_is_one_line_that_fits)},
    {TEST(an_error_at_a_place_keeps_the_place)},
    {TEST(an_error_is_good_utf8)},
};
CHECK_MAIN(tests)
