/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Price files. A price that was read is written out as whole picoseconds and femtoseconds and read
 * again; and each of its numbers is near what the C library makes of the same word.
 */
#include "fuzz.h"
#include "price/price_text.h"

#include <math.h>

static void check_again(sherd__diag *diag, const sherd_price *price)
{
    char text[SHERD_MAX_LINKS * 160];
    sherd__writer w = {text, sizeof text, 0};
    sherd_price again;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        sherd__write(&w, "%s %llde-12 %llde-15 %llde-15", link->axis,
                     (long long)link->alpha_picoseconds, (long long)link->beta_femtoseconds,
                     (long long)link->gamma_femtoseconds);
        if (price->link[i].upto_bytes)
            sherd__write(&w, " upto %lld", (long long)price->link[i].upto_bytes);
        sherd__write(&w, "\n");
    }
    sherd__write(&w, "%s%s", price->straight ? "straight\n" : "", price->overlap ? "overlap" : "");
    MUST_SAY(sherd__price_read(&again, diag, text) == SHERD_OK, diag->text);
    MUST(again.kind == SHERD_PRICE_LINKS && again.links == price->links);
    MUST(again.overlap == price->overlap && again.straight == price->straight);
    for (int i = 0; i < price->links; i++) {
        const sherd_link *a = &price->link[i], *b = &again.link[i];
        MUST(strcmp(a->axis, b->axis) == 0 && a->alpha_picoseconds == b->alpha_picoseconds &&
             a->beta_femtoseconds == b->beta_femtoseconds &&
             a->gamma_femtoseconds == b->gamma_femtoseconds);
        MUST(price->link[i].upto_bytes == again.link[i].upto_bytes);
    }
}

/*
 * `units` of 10^-scale seconds, from this word: 64 bits of mantissa are exact to 4 parts in 2^62.
 */
static void check_near(const char *word, int64_t units, long double scale)
{
    long double value = strtold(word, NULL) * scale;

    MUST_SAY(units >= 0 && fabsl(value - (long double)units) <= 0.5001L + value * 0x1p-60L, word);
}

/* The words of a text that was read, taken apart by the C library. */
static void check_words(char *text, const sherd_price *price)
{
    int links = 0;
    char *line_end, *word_end;

    for (char *line = strtok_r(text, "\n", &line_end); line;
         line = strtok_r(NULL, "\n", &line_end)) {
        line[strcspn(line, "#")] = '\0';
        const char *axis = strtok_r(line, " \t\r", &word_end);
        const char *alpha = axis ? strtok_r(NULL, " \t\r", &word_end) : NULL;
        if (!axis || (!alpha && (strcmp(axis, "overlap") == 0 || strcmp(axis, "straight") == 0)))
            continue;
        const sherd_link *link = &price->link[links++];
        MUST(links <= price->links && strcmp(link->axis, axis) == 0);
        check_near(alpha, link->alpha_picoseconds, 1e12L);
        check_near(strtok_r(NULL, " \t\r", &word_end), link->beta_femtoseconds, 1e15L);
        check_near(strtok_r(NULL, " \t\r", &word_end), link->gamma_femtoseconds, 1e15L);
    }
    MUST(links == price->links);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    paper p = {.diag.rank = -1};
    sherd_price price;

    sherd_status status = sherd__price_read(&price, &p.diag, text);
    if (status == SHERD_OK) {
        check_again(&p.diag, &price);
        check_words(text, &price);
    } else {
        check_error(&p, status, text, NULL);
    }
    free(text);
    return 0;
}
