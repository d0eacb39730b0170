/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of files of tensors. Of one that is taken, every tensor lies in the file, has the bytes
 * that its shape needs, and shares none; and written out it is read again. The file is as long as
 * the number at the end of the input says, or as its tensors want.
 */
#include "fuzz.h"
#include "io/header.h"

static int64_t end_of(const sherd__header *h, int64_t begin)
{
    int64_t end = begin;

    for (int i = 0; i < h->entries; i++)
        end = sherd__max(end, h->entry[i].offset + h->entry[i].bytes);
    return end;
}

static void check_entries(const sherd__header *h, int64_t begin, int64_t end)
{
    int64_t bytes = 0;

    for (int i = 0; i < h->entries; i++) {
        const sherd_file_entry *e = &h->entry[i];
        int64_t count = 1;
        MUST(e->name && e->offset >= begin && e->bytes >= 0 && e->bytes <= end - e->offset);
        for (int d = 0; d < e->ndim; d++)
            MUST(e->shape[d] >= 0 && sherd__mul(count, e->shape[d], &count));
        if (e->dtype)
            MUST(count * (int64_t)sherd_dtype_bytes(e->dtype) == e->bytes);
        bytes += e->bytes;
    }
    MUST(bytes == end - begin);
}

static void check_again(paper *p, sherd__header *h)
{
    sherd__header again;
    char *text = NULL;
    size_t bytes;

    for (int i = 0; i < h->entries; i++)
        if (!h->entry[i].dtype)
            return; /* it can not be written */
    MUST_SAY(sherd__header_text(&text, &bytes, h, &p->diag, "f") == SHERD_OK, p->diag.text);
    MUST_SAY(sherd__header_parse(&again, text + 8, bytes - 8,
                                 &(sherd__header_of){&p->heap, &p->diag, "f", "file",
                                                     end_of(h, (int64_t)bytes)}) == SHERD_OK,
             p->diag.text);
    MUST(again.entries == h->entries && again.notes == h->notes);
    for (int i = 0; i < h->entries; i++)
        MUST(strcmp(again.entry[i].name, h->entry[i].name) == 0 &&
             again.entry[i].offset == h->entry[i].offset);
    sherd__header_clear(&again);
    sherd__free(&p->heap, text);
}

/*
 * The last number of the text that ends a place: most files that are tried are as long as their
 * tensors.
 */
static int64_t length_of(const char *text)
{
    const char *close = strrchr(text, ']');
    int64_t length = 0, scale = 1;

    for (; close && close > text && close[-1] >= '0' && close[-1] <= '9' && scale < 1000000000;
         close--, scale *= 10)
        length += (close[-1] - '0') * scale;
    return length;
}

static void read_one(const char *text, size_t bytes, int64_t fail_at)
{
    paper p = {.diag.rank = -1, .heap.fail_at = fail_at};
    int64_t begin = 8 + (int64_t)bytes, end = begin + length_of(text);
    sherd__header h;

    sherd_status status = sherd__header_parse(
        &h, text, bytes, &(sherd__header_of){&p.heap, &p.diag, "f", "file", end});
    if (status == SHERD_OK) {
        check_entries(&h, begin, end);
        if (!fail_at)
            check_again(&p, &h);
        sherd__header_clear(&h);
    } else {
        MUST(p.diag.status == status && strlen(p.diag.text) > 0 && is_one_line(p.diag.text));
    }
    MUST(p.heap.live == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_twice(data, bytes, read_one);
    return 0;
}
