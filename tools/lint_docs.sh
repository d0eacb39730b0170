#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests that these pages name as proofs are there: `file`: `test` in the last column of a row whose table says so.
cd "$(dirname "$0")/.." || exit 2
bad=$(for page in docs/from_pytorch.md docs/from_shardtensor.md; do
    awk -F'|' '/^\|/ { if (!row++) on = $(NF - 1) ~ /^ test $/; if (on) print $(NF - 1); next } { row = 0 }' "$page" |
        grep -o '`[a-z0-9_]*`' | tr -d '`' | {
        file=
        while read -r name; do
            if [ -f "tests/test_$name.c" ]; then
                file=tests/test_$name.c
            elif [ -z "$file" ] || ! grep -q "{TEST($name)" "$file"; then
                echo "$page: there is no test $name in ${file:-any file}"
            fi
        done
    }
done)
[ -z "$bad" ] && exit 0
printf '%s\n' "$bad"
exit 1
