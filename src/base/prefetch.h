/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for a cache line that is written soon. */
#ifndef SHERD__PREFETCH_H
#define SHERD__PREFETCH_H

/*
 * Ask for the line at p, taken away from whoever has it: a store that waits for its line keeps
 * those behind it waiting. __builtin_prefetch would ask for a copy only, unless the compiler is
 * told that the CPU has this instruction; those without take it for nothing.
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
