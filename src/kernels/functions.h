/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the functions of functions.inc, and which kernels of a table compute with them. */
#ifndef SHERD__KERNELS_FUNCTIONS_H
#define SHERD__KERNELS_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum sherd__unary_kind {
    SHERD__SCALE, /* x * parameter[0] */
    SHERD__SHIFT, /* x + parameter[0] */
#define UNARY0(name, NAME, ...)  SHERD__##NAME,
#define UNARY1(name, NAME, ...)  SHERD__##NAME,
#define UNARY2(name, NAME, ...)  SHERD__##NAME,
#define HIDDEN1(name, NAME, ...) SHERD__##NAME,
#include "functions.inc"
    SHERD__UNARY_KINDS
} sherd__unary_kind;

typedef enum sherd__binary_kind {
    SHERD__ADD,
    SHERD__SUB,
    SHERD__MUL,
#define BINARY(name, NAME, ...) SHERD__##NAME,
#include "functions.inc"
    SHERD__BINARY_KINDS
} sherd__binary_kind;

typedef enum sherd__compare_kind {
#define COMPARE(name, NAME, ...) SHERD__##NAME,
#define LOGIC(name, NAME, ...)   SHERD__##NAME,
#include "functions.inc"
    SHERD__COMPARE_KINDS
} sherd__compare_kind;

enum { SHERD__PARAMETERS = 2 }; /* of a function, at most */

typedef enum sherd__soft_kind { SHERD__SOFTMAX, SHERD__LOG_SOFTMAX } sherd__soft_kind;

#endif
