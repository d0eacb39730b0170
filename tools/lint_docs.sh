#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests that these pages name as proofs are there: `file`: `test` in the last column of a row whose table says so, and
# "test_file: test" in docs/running.md (... at the end: several begin so).
# The functions that the page of operators names are in the headers. Each decision is in the list by subject, and begins
# with its number. docs/operators.md is what BUILD/operators_table prints, if that is built. A file that a page or a comment
# names is there (of others: a list below): `file.c`, or file.c in a line that begins as a comment does. Usage: tools/lint_docs.sh [BUILD]
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
proofs=$(grep -oE '\btest_[a-z0-9_]+: [a-z0-9_]+' docs/running.md |
    while IFS=': ' read -r file name; do
        grep -qs "{TEST($name" "tests/$file.c" || echo "docs/running.md: there is no test $name in tests/$file.c"
    done)
names=$(grep -oE '\bsherd_[a-z0-9_]+' docs/from_pytorch_operators.md | sort -u |
    while read -r name; do
        grep -qwh "$name" include/sherd/*.h || echo "docs/from_pytorch_operators.md: there is no $name"
    done)
decisions=$(cd docs/decisions && for page in [0-9]*.md; do
    head -n 1 "$page" | grep -q "^# ${page%%-*}: " || echo "docs/decisions/$page: its first line is not '# ${page%%-*}: title'"
    [ "$(grep -c "($page)" README.md)" = 1 ] || echo "docs/decisions/$page: not once in README.md, in the list by subject"
done)
table=${1:-build}/operators_table
operators=$([ ! -x "$table" ] || "$table" | cmp -s - docs/operators.md || echo "docs/operators.md: make operators")
files=$({ find . -name 'build*' -prune -o -name .git -prune -o -type f -print | sed 's/^/= /'
    grep -noE '`[a-z0-9_./]+[.](c|h|inc|cu|cuh|hpp|py|sh|md)`' README.md CONTRIBUTING.md docs/*.md docs/decisions/*.md
    grep -nE '^ *(/\*| \*)' -r include src cli examples tests bench --include='*.[ch]' --include='*.inc' --include='*.cu*'
} | awk '
BEGIN { split("png.h prctl.h test_redistribute.py test_dtensor.py test_tp_examples.py", other); for (i in other) there[other[i]] }
/^= / { sub(/.*\//, "", $2); there[$2]; next }
{
    at = $0; sub(/:[^:]*$/, "", at); split($0, part, ":"); text = $0; sub(/^[^:]*:[0-9]*:/, "", text)
    while (match(text, /[A-Za-z0-9_*<>%.\/-]+[.](c|h|inc|cu|cuh|hpp|py|sh|md)($|[^A-Za-z0-9_])/)) {
        name = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        sub(/[^A-Za-z0-9_]$/, "", name)
        if (name ~ /[*<>%]|^[._]/) continue
        sub(/.*\//, "", name)
        if (!(name in there)) print part[1] ":" part[2] ": there is no " name
    }
}')
[ -z "$bad$proofs$names$decisions$operators$files" ] && exit 0
printf '%s\n' "$bad" "$proofs" "$names" "$decisions" "$operators" "$files" | grep .
exit 1
