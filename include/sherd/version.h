/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version. While the first number is 0, a new second number may break programs, and is part of
 * the shared library's soname; a new third number breaks none.
 */
#ifndef SHERD_VERSION_H
#define SHERD_VERSION_H

#include "status.h"

/* The only place that says it: CMakeLists.txt reads these lines. */
#define SHERD_VERSION_MAJOR 0
#define SHERD_VERSION_MINOR 1
#define SHERD_VERSION_PATCH 0

SHERD_BEGIN

/**
 * The version of the library that runs, for example "0.1.0". The macros are those of the headers
 * that a program was compiled with.
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_version(void);

SHERD_END

#endif
