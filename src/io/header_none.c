/* SPDX-License-Identifier: Apache-2.0 */
/* Built instead of header_json.c if there is no jansson: files of tensors are refused (ENOTSUP). */
#include "io/header.h"
#include "io/index.h"

sherd_status sherd__header_parse(sherd__header *out, const char *text, size_t bytes,
                                 const sherd__header_of *of)
{
    (void)text, (void)bytes;
    *out = (sherd__header){.heap = of->heap};
    return sherd__fail(of->diag, SHERD_ENOTSUP, "%s: sherd was built without jansson",
                       of->function);
}

sherd_status sherd__header_text(char **out, size_t *bytes, sherd__header *header, sherd__diag *diag,
                                const char *function)
{
    (void)bytes, (void)header;
    *out = NULL;
    return sherd__fail(diag, SHERD_ENOTSUP, "%s: sherd was built without jansson", function);
}

sherd_status sherd__index_parse(sherd__paths *out, const char *text, size_t bytes,
                                const sherd__header_of *of)
{
    (void)out, (void)text, (void)bytes;
    return sherd__fail(of->diag, SHERD_ENOTSUP, "%s: sherd was built without jansson",
                       of->function);
}
