#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests that docs/from_pytorch.md names as proofs are there: `file`: `test` in the last column of a row.
cd "$(dirname "$0")/.." || exit 2
bad=$(awk -F'|' '/^## /{ on = /Traps/ } on && NF > 3 { print $(NF - 1) }' docs/from_pytorch.md |
    grep -o '`[a-z0-9_]*`' | tr -d '`' | {
    file=
    while read -r name; do
        if [ -f "tests/test_$name.c" ]; then
            file=tests/test_$name.c
        elif [ -z "$file" ] || ! grep -q "{TEST($name)" "$file"; then
            echo "docs/from_pytorch.md: there is no test $name in ${file:-any file}"
        fi
    done
})
[ -z "$bad" ] && exit 0
printf '%s\n' "$bad"
exit 1
