/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that programs for the GPU are made from, as they were when sherd was built: a table
 * that tools/embed.cmake writes. */
#ifndef SHERD__DEVICE_TEXTS_H
#define SHERD__DEVICE_TEXTS_H

typedef struct sherd__device_text {
    const char *name; /* of the file, without its folder */
    const unsigned char *text;
} sherd__device_text;

extern const sherd__device_text sherd__device_texts[]; /* until one without a name */

#endif
