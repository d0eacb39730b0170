/* SPDX-License-Identifier: Apache-2.0 */
#include "sherd/version.h"

#define TEXT_(number) #number
#define TEXT(number)  TEXT_(number)

const char *sherd_version(void)
{
    return TEXT(SHERD_VERSION_MAJOR) "." TEXT(SHERD_VERSION_MINOR) "." TEXT(SHERD_VERSION_PATCH);
}
