/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a tensor is to lie, "S(0)R 0:4,6" or "[10(x:4,6),6]", for tensors of all sorts that lie
 * somewhere already.
 */
#include "fuzz.h"

static const char *const sources[] = {
    "[10(x:4,6),6(y)] on (x=2,y=4)",
    "[5(a0)] on (a0=4)",
    "[] on (a0=1)",
    "[8(z,x),0,13] P(sum:y) on (x=2,y=2,z=2)",
    "[7,5(y,x:1,1,1,1,1,0)] on (x=2,y=3@5,4,3,2,1,0)",
    "[1000003(x),7] on (x=1048576)",
};

static sherd_status try(const char *source, const char *text, bool keeps, int64_t fail_at)
{
    const sherd_layout *from = NULL, *layout = NULL;
    paper p;

    paper_open(&p, 1 << 20, 0);
    MUST(sherd__layout_read(&from, &p.space, source, NULL) == SHERD_OK);
    const sherd__target target = {"fuzz",          from->spec.mesh,  SHERD_BF16,
                                  from->spec.ndim, from->spec.shape, keeps ? from : NULL};
    p.heap.allocations = 0;
    p.heap.fail_at = fail_at;
    sherd_status status = sherd__target_read(&layout, &target, text);
    MUST((status == SHERD_OK) == (layout != NULL));
    if (status != SHERD_OK)
        check_error(&p, status, text, NULL);
    p.heap.fail_at = 0;
    if (layout) {
        MUST(layout->spec.mesh == from->spec.mesh && layout->spec.ndim == from->spec.ndim);
        check_layout(&p, layout);
    }
    paper_close(&p);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    int64_t fail_at = fuzz_fail_at(text);

    for (int i = 0; i < LEN(sources); i++)
        for (int keeps = 0; keeps < 2; keeps++) {
            sherd_status status = try(sources[i], text, keeps, 0);
            sherd_status starved = try(sources[i], text, keeps, fail_at);
            MUST(starved == status || starved == SHERD_ENOMEM);
        }
    free(text);
    return 0;
}
