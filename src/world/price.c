/* SPDX-License-Identifier: Apache-2.0 */
/* What reads a price file needs of the world: where its errors go. */
#include "world.h"
#include "price/price_text.h"

sherd_status sherd_price_parse(sherd_price *out, sherd_world *world, const char *text)
{
    const sherd__argument need[] = {{"world", world}, {"out", out}, {"text", text}, {NULL, NULL}};

    if (sherd__require(sherd__world_diag(world), "sherd_price_parse", need))
        return SHERD_EINVAL;
    return sherd__price_read(out, sherd__world_diag(world), text);
}
