#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every lint, whichever fails before it, and fails if one did. Needs sh, awk, a C compiler and (for the
# symbols) the shared library in BUILD. Usage: tools/lint.sh [BUILD]
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
bad=0

run() {
    name=$1
    shift
    if out=$("$@" 2>&1); then
        echo "$name: ok"
    else
        echo "$name: FAILED"
        bad=$((bad + 1))
    fi
    [ -z "$out" ] || printf '%s\n' "$out" | sed 's/^/  /'
}

check_format() {
    command -v clang-format >/dev/null 2>&1 || {
        echo "skipped: there is no clang-format here"
        return 0
    }
    clang-format --dry-run -Werror --ferror-limit=1 $(tools/sources.sh c) 2>&1 | grep 'error:' && return 1
    return 0
}

run includes tools/lint_includes.sh
run tags tools/lint_tags.sh
run headers tools/lint_headers.sh
run size tools/lint_size.sh
run style tools/lint_style.sh
run names tools/lint_names.sh
run readme tools/lint_readme.sh
run examples tools/lint_examples.sh
run docs tools/lint_docs.sh "$build"
run misuse tools/lint_misuse.sh
run symbols tools/lint_symbols.sh "$build"
run circles tools/lint_circles.sh "$build"
run format check_format
[ $bad -eq 0 ] || { echo "lint: $bad of 13 failed"; exit 1; }
echo "lint: clean"
