/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of status codes, both from the one list in status.h. */
#include "sherd/status.h"

const char *sherd_status_name(sherd_status status)
{
    switch (status) {
#define NAME(name, number, text) \
    case SHERD_##name:           \
        return #name;
        SHERD_STATUS_LIST(NAME)
#undef NAME
    }
    return "unknown";
}

const char *sherd_status_text(sherd_status status)
{
    switch (status) {
#define TEXT(name, number, text) \
    case SHERD_##name:           \
        return text;
        SHERD_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "not a status of this library";
}
