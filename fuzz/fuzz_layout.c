/* SPDX-License-Identifier: Apache-2.0 */
/* Full texts of layouts, in a small world and in a large one. */
#include "fuzz.h"

/* The text with its dtype, as messages show it, reads back too. */
static void check_described(paper *p, const sherd_layout *layout, int dtype)
{
    size_t room = strlen(sherd_layout_text(layout)) + 16;
    char *described = malloc(room);
    const sherd_layout *again = NULL;
    int type = -1;

    MUST(described != NULL && sherd_dtype_bytes((sherd_dtype)dtype) > 0);
    sherd__layout_describe(layout, (sherd_dtype)dtype, described, room);
    MUST(sherd__layout_read(&again, &p->space, described, &type) == SHERD_OK);
    MUST_SAY(again == layout && type == dtype, described);
    free(described);
}

static sherd_status try(const char *text, int ranks, int64_t fail_at)
{
    const sherd_layout *layout = NULL;
    int dtype = -1;
    paper p;

    paper_open(&p, ranks, fail_at);
    sherd_status status = sherd__layout_read(&layout, &p.space, text, &dtype);
    MUST((status == SHERD_OK) == (layout != NULL));
    if (status != SHERD_OK)
        check_error(&p, status, text, NULL);
    p.heap.fail_at = 0;
    if (layout) {
        check_layout(&p, layout);
        check_described(&p, layout, dtype);
    } else {
        MUST(dtype == -1);
    }
    paper_close(&p);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int worlds[] = {8, 2147483647};
    char *text = fuzz_text(data, bytes);

    for (int i = 0; i < LEN(worlds); i++) {
        sherd_status status = try(text, worlds[i], 0);
        sherd_status starved = try(text, worlds[i], fuzz_fail_at(text));
        MUST(starved == status || starved == SHERD_ENOMEM);
    }
    free(text);
    return 0;
}
