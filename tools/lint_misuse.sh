#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every exported function is named in a test of misuse: whoever adds one says there what its NULLs and its numbers
# out of range do.
cd "$(dirname "$0")/.." || exit 2
grep -ohE '\bsherd_[a-z0-9_]+\(' tests/test_*_misuse.c | tr -d '(' | grep -vxFf - tools/symbols.txt |
    sed 's/^/not in any tests\/test_*_misuse.c: /' | grep . && exit 1
exit 0
