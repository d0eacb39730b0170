/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes, and the macros that every public declaration carries.
 *
 * A function that returns sherd_status returns 0 for success and a negative code for a failure. The
 * codes are few: each stands for what the caller can do about the failure, not for one cause. The
 * cause, in one line with rank, function and values, is what sherd_world_error() returns.
 */
#ifndef SHERD_STATUS_H
#define SHERD_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SHERD_API        __attribute__((visibility("default")))
#define SHERD_MUST_CHECK __attribute__((warn_unused_result))
/* For functions like printf: the numbers of the format parameter and of the first value. */
#define SHERD_FORMAT(text, values) __attribute__((format(printf, text, values)))
#else
#define SHERD_API
#define SHERD_MUST_CHECK
#define SHERD_FORMAT(text, values)
#endif
/* Declares a function that returns a status. */
#define SHERD_CALL SHERD_API SHERD_MUST_CHECK

#ifdef __cplusplus
#define SHERD_BEGIN extern "C" {
#define SHERD_END   }
#else
#define SHERD_BEGIN
#define SHERD_END
#endif

SHERD_BEGIN

/* name, number, what it means */
#define SHERD_STATUS_LIST(X)                                                   \
    X(OK, 0, "success")                                                        \
    X(EINVAL, -1, "an argument is wrong")                                      \
    X(EDIFFER, -2, "ranks passed different arguments or made different calls") \
    X(ENOTSUP, -3, "not supported")                                            \
    X(ENOMEM, -4, "out of memory")                                             \
    X(ELIMIT, -5, "a limit of the library is exceeded")                        \
    X(EPEER, -6, "a rank has died; the world stays closed")                    \
    X(ETIMEDOUT, -7, "a rank did not come in time; the world stays closed")

typedef enum sherd_status {
#define SHERD_STATUS_VALUE(name, number, text) SHERD_##name = number,
    SHERD_STATUS_LIST(SHERD_STATUS_VALUE)
#undef SHERD_STATUS_VALUE
} sherd_status;

enum {
    SHERD_MAX_DIMS = 8,     /* dims of a tensor */
    SHERD_MAX_AXES = 8,     /* axes of a mesh */
    SHERD_MAX_RANKS = 1024, /* ranks of a world; a paper world takes any number */
    SHERD_ERROR_BYTES = 512 /* room for any error text, with its ending zero */
};

/**
 * The name of a status without its prefix, for example "EINVAL"; "unknown" for a number that is not
 * a status.
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_status_name(sherd_status status);

/**
 * What a status means, in a few words.
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_status_text(sherd_status status);

SHERD_END

#endif
