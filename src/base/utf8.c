/* SPDX-License-Identifier: Apache-2.0 */
/* What is UTF-8: see utf8.h. */
#include "utf8.h"

int sherd__utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    int length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    unsigned code = at[0] & (0xffu >> (length + 1));
    static const unsigned least[] = {0x80, 0x800, 0x10000};

    if (at[0] < 0xc0 || at[0] > 0xf7)
        return 0;
    for (int i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) /* also the ending zero */
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[length - 2] || code > 0x10ffff || surrogate ? 0 : length;
}

bool sherd__is_utf8(const char *text)
{
    while (*text) {
        int length = (unsigned char)*text < 0x80 ? 1 : sherd__utf8_length(text);
        if (length == 0)
            return false;
        text += length;
    }
    return true;
}
