/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame that takes any exception, without C++: catch.h. The unwinder asks the personality of each
 * frame, here a function in C, twice: whether the frame has a handler, and where to continue. The
 * frame is in assembly, because C cannot name the place to continue at: its LSDA, where C++ would
 * have tables, is simply that address. See docs/decisions/129.
 */
#include "catch.h"

#if defined(__ELF__) && defined(__x86_64__) && !defined(__ILP32__)
#define FRAME                           \
    "pushq %rbp\n"                      \
    ".cfi_def_cfa_offset 16\n"          \
    ".cfi_offset %rbp, -16\n"           \
    "movq %rsp, %rbp\n"                 \
    ".cfi_def_cfa_register %rbp\n"      \
    "movq %rdi, %rax\n"                 \
    "movq %rsi, %rdi\n"                 \
    "call *%rax\n"                      \
    "1: popq %rbp\n"                    \
    ".cfi_remember_state\n"             \
    ".cfi_def_cfa %rsp, 8\n"            \
    ".cfi_restore %rbp\n"               \
    "ret\n"                             \
    ".cfi_restore_state\n"              \
    ".Lsherd_thrown: movq %rax, %rdi\n" \
    "call sherd__drop_thrown\n"         \
    "jmp 1b\n"
#elif defined(__ELF__) && defined(__aarch64__) && !defined(__ILP32__)
#define FRAME                                 \
    "stp x29, x30, [sp, -16]!\n"              \
    ".cfi_def_cfa_offset 16\n"                \
    ".cfi_offset 29, -16\n"                   \
    ".cfi_offset 30, -8\n"                    \
    "mov x29, sp\n"                           \
    "mov x2, x0\n"                            \
    "mov x0, x1\n"                            \
    "blr x2\n"                                \
    "1: ldp x29, x30, [sp], 16\n"             \
    ".cfi_remember_state\n"                   \
    ".cfi_restore 29\n"                       \
    ".cfi_restore 30\n"                       \
    ".cfi_def_cfa_offset 0\n"                 \
    "ret\n"                                   \
    ".cfi_restore_state\n"                    \
    ".Lsherd_thrown: bl sherd__drop_thrown\n" \
    "b 1b\n"
#endif

#ifdef FRAME

#include <stdint.h>
#include <unwind.h>

/* Called only by the assembly below: no header declares them, and the compiler sees no use. */
#define BY_FRAME __attribute__((used, noinline))
BY_FRAME _Unwind_Reason_Code sherd__take_thrown(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class kind,
                                                struct _Unwind_Exception *thrown,
                                                struct _Unwind_Context *frame);
BY_FRAME int sherd__drop_thrown(struct _Unwind_Exception *thrown);

/* Forced unwinding, as by pthread_cancel, must not be stopped: let it pass. */
_Unwind_Reason_Code sherd__take_thrown(int version, _Unwind_Action actions,
                                       _Unwind_Exception_Class kind,
                                       struct _Unwind_Exception *thrown,
                                       struct _Unwind_Context *frame)
{
    (void)version, (void)kind;
    if (actions & _UA_FORCE_UNWIND)
        return _URC_CONTINUE_UNWIND;
    if (actions & _UA_SEARCH_PHASE)
        return _URC_HANDLER_FOUND;
    if (!(actions & _UA_HANDLER_FRAME))
        return _URC_CONTINUE_UNWIND;
    _Unwind_SetGR(frame, __builtin_eh_return_data_regno(0), (uintptr_t)thrown);
    _Unwind_SetIP(frame, (uintptr_t)_Unwind_GetLanguageSpecificData(frame));
    return _URC_INSTALL_CONTEXT;
}

int sherd__drop_thrown(struct _Unwind_Exception *thrown)
{
    _Unwind_DeleteException(thrown);
    return SHERD__THROWN;
}

/* 0x1b is DW_EH_PE_pcrel | DW_EH_PE_sdata4: four bytes, relative to their own place. */
__asm__(".pushsection .text\n"
        ".globl sherd__catch\n"
        ".hidden sherd__catch\n"
        ".type sherd__catch, %function\n"
        ".p2align 4\n"
        "sherd__catch:\n"
        ".cfi_startproc\n"
        ".cfi_personality 0x1b, sherd__take_thrown\n"
        ".cfi_lsda 0x1b, .Lsherd_thrown\n" FRAME ".cfi_endproc\n"
        ".size sherd__catch, . - sherd__catch\n"
        ".popsection\n");

bool sherd__catches_thrown(void)
{
    return true;
}

#else

int sherd__catch(int (*call)(void *context), void *context)
{
    return call(context);
}

bool sherd__catches_thrown(void)
{
    return false;
}

#endif
