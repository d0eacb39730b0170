#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files of at most 500 lines, of at most 100 columns, functions of at most 80 lines (kernels, and programs for GPUs, 150). Tests and benches, and functions with more
# than 6 parameters (elsewhere than there, in kernels/ and in device/), are only named. A function begins with { and ends with } in the first column.
cd "$(dirname "$0")/.." || exit 2
awk '
function limit(file) { return file ~ /^src\/kernels\/|[.]cuh?$/ ? 150 : 80 }
function say(line, what, mild) {
    print FILENAME ":" line ": " (mild ? "(warning) " : "") what
    if (!mild) bad = 1
}
function mild() { return FILENAME ~ /^(tests|bench|fuzz)\// }
# Parameters of the declarator in `head`: commas at depth 1, plus one.
function parameters(head,    i, c, depth, n) {
    n = 1
    for (i = index(head, "("); i > 0 && i <= length(head); i++) {
        c = substr(head, i, 1)
        if (c == "(") depth++
        else if (c == ")" && --depth == 0) break
        else if (c == "," && depth == 1) n++
    }
    return n
}
function file_end(    soft) {
    soft = last ~ /^(tests|bench|fuzz)\//
    if (lines > 500) {
        print last ": " (soft ? "(warning) " : "") lines " lines, at most 500"
        if (!soft) bad = 1
    }
}
FNR == 1 { file_end(); head = ""; start = 0; last = FILENAME }
{ lines = FNR }
length($0) > 100 && !mild() { say(FNR, length($0) " columns, at most 100") }
/^{/ {
    start = FNR; name = head
    sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
    n = parameters(head)
    if (n > 6 && FILENAME !~ /^(src\/kernels|src\/device|tests|bench|fuzz)\//) say(FNR, name " has " n " parameters, at most 6", 1)
}
/^}/ {
    n = FNR - start - 1
    if (start && n > limit(FILENAME)) say(start, name " has " n " lines, at most " limit(FILENAME), mild())
    start = 0
}
{ head = ($0 ~ /[;}]$|^#|^$|\*\/$/) ? "" : head " " $0 }
END { file_end(); exit bad }' $(tools/sources.sh c)
