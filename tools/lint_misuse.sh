#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every exported function is named in a test of misuse: whoever adds one says there what its NULLs and its numbers
# out of range do. The rows of src/kernels/functions.inc are tried as a list, by tests/test_ops_elements_misuse.c.
cd "$(dirname "$0")/.." || exit 2
rows=$(sed -nE 's/^(UNARY[012]|BINARY|LOGIC)\(([a-z0-9_]+),.*/sherd_\2/p
    s/^COMPARE\(([a-z0-9_]+),.*/sherd_\1\nsherd_\1_scalar/p' src/kernels/functions.inc)
{ grep -ohE '\bsherd_[a-z0-9_]+\(' tests/test_*_misuse.c | tr -d '('; echo "$rows"; } | grep -vxFf - tools/symbols.txt |
    sed 's/^/not in any tests\/test_*_misuse.c: /' | grep . && exit 1
exit 0
