/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetching a cache line for writing. */
#ifndef SHERD__BASE_PREFETCH_H
#define SHERD__BASE_PREFETCH_H

/*
 * Prefetch the line at p in exclusive state (other cores lose their copies): a store that misses
 * its line holds up the stores behind it. __builtin_prefetch would fetch a shared copy, unless the
 * compiler may assume PREFETCHW; CPUs that lack the instruction execute it as a no-op.
 */
static inline void sherd__own_soon(const volatile void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const volatile char *)p));
#else
    __builtin_prefetch((const void *)p, 1);
#endif
}

#endif
