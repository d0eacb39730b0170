/* SPDX-License-Identifier: Apache-2.0 */
/* No pictures: what stands in for picture.c where libpng was not found when this was built. */
#include "output.h"

bool picture_can(char *error)
{
    snprintf(error, LINE_BYTES, "--picture: this program was built without libpng");
    return false;
}

bool picture_make(unsigned char **out, size_t *bytes, const double *values, int64_t rows,
                  int64_t columns, char *error)
{
    (void)bytes, (void)values, (void)rows, (void)columns;
    *out = NULL;
    return picture_can(error);
}
