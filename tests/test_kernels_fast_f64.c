/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels of f64 against the plain ones. test_kernels_math.c says how accurate functions
 * are. */
#define CHECK_PURE
#include <tgmath.h>

#include "check.h"
#include "kernel_versions.h"

typedef double real;
#define PLAIN    sherd__ref_f64
#define VERSIONS versions_f64
static const double scale = 0x1p-27; /* of tolerances: four times what f64 rounds less */

#include "kernels_fast.inc"

static const check_test tests[] = {SHARED_TESTS};

int main(int argc, char **argv)
{
    return run(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
