/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields at points: see sample.h. For some points at a time the elements around them and their
 * weights are found, once for all channels.
 */
#include "sample.h"

#include <string.h>
#include <tgmath.h>

#define SAMPLER sherd__sampler_plain
#include "sample_tables.inc"
