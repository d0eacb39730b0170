/* SPDX-License-Identifier: Apache-2.0 */
/* Bits and groups of weights that sherd_module_quantize made, as notes of a file. */
#ifndef SHERD__IO_WHOLE_NUMBERS_H
#define SHERD__IO_WHOLE_NUMBERS_H

#include "io/generators.h"

/* List those of weights that bear the walk, alike on all ranks. Local. The caller clears the list
 * in any case, as that of generators. */
sherd_status sherd__whole_numbers_list(sherd__notes *out, const sherd_module *module, uint64_t walk,
                                       const char *function);

/* Whether a note with this key belongs to them. */
bool sherd__whole_numbers_have(const char *key);

/* Refuse (EINVAL) file[count] if a note says otherwise of a weight that bears the walk. Local. */
sherd_status sherd__whole_numbers_match(sherd_module *module, uint64_t walk,
                                        sherd_file *const *file, int count, const char *function);

#endif
