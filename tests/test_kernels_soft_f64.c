/* SPDX-License-Identifier: Apache-2.0 */
/* The fast softmax of f64 against the plain one. */
#define CHECK_PURE
#include <float.h>
#include <math.h>

#include "check.h"
#include "kernel_versions.h"

typedef double real;
#define PLAIN    sherd__ref_f64
#define VERSIONS versions_f64
#define LARGEST  DBL_MAX
static const double scale = 0x1p-29; /* of tolerances */

#include "kernels_soft.inc"

static const check_test tests[] = {
    {TEST(every_size_is_as_plain)},
    {TEST(what_is_no_number_is_where_it_was)},
    {TEST(rows_by_the_few_are_as_all_at_once)},
};
CHECK_MAIN(tests)
