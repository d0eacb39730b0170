#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names in the source mean one thing: a header's guard is SHERD__ROOM_FILE_H, a struct or enum is defined in one file (or in a
# header and a .c of the same room, one of which is compiled), so is a constant or macro named SHERD__X. A function is declared
# in a header of the room that defines it, and what is declared under "---- x.c" is defined in x.c (several files may be
# named; a head without one promises nothing).
cd "$(dirname "$0")/.." || exit 2
awk '
function say(what) { print FILENAME ":" FNR ": " what; bad = 1 }
function base(path) { sub(/.*\//, "", path); return path }
function constant(what) {
    if ((what in valued) && valued[what] != FILENAME) say(what " is something else in " valued[what])
    valued[what] = FILENAME
}
function constants(body, i, n, value) {
    gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", body); sub(/[^{]*[{]/, "", body); sub(/[}].*/, "", body)
    n = split(body, value, ",")
    for (i = 1; i <= n; i++)
        if (match(value[i], /^[ \t\n]*SHERD__[A-Z0-9_]+/)) {
            what = substr(value[i], RSTART, RLENGTH); gsub(/[ \t\n]/, "", what); constant(what)
        }
}
function room(path) { sub(/\/[^\/]*$/, "", path); return path }
FNR == 1 {
    header = FILENAME ~ /[.]h$/
    guard = FILENAME; sub(/^src\//, "", guard); sub(/[.]h$/, "", guard); gsub(/\//, "_", guard)
    guard = "SHERD__" toupper(guard) "_H"; guarded = files = name = ""
}
header && !guarded && /^#ifndef/ { guarded = 1; if ($2 != guard) say("the guard is " $2 ", not " guard) }
match($0, /^(typedef )?(struct|enum|union) sherd__[a-z0-9_]+ [{]/) {
    tag = substr($0, 1, RLENGTH - 2); sub(/.* /, "", tag)
    if ((tag in home) && home[tag] != FILENAME && (room(home[tag]) != room(FILENAME) || home[tag] FILENAME !~ /[.]c/))
        say(tag " is something else in " home[tag])
    home[tag] = FILENAME
}
header && /^\/\* ---- / { files = $0; if (files !~ /[a-z0-9_]+[.]c[^a-z]/) files = "" }
/^#define SHERD__[A-Z0-9_]+/ && $2 !~ /_H$/ { what = $2; sub(/\(.*/, "", what); constant(what) }
/^(typedef )?enum( [a-z0-9_]+)? [{]/ { body = ""; values = 1 }
values { body = body "\n" $0; if (/[}]/) { constants(body); values = 0 } }
!/^(static|typedef|extern|#)/ && match($0, /^[A-Za-z].*[ *]sherd_[a-z0-9_]+\(/) {
    name = substr($0, 1, RLENGTH - 1); sub(/.*[ *]/, "", name)
    if (header && $0 !~ /[{]$/) { declared[name] = files; at[name] = FILENAME ":" FNR; said[name] = room(FILENAME) }
}
/^[{]$/ && name != "" { if (!header) where[name] = FILENAME; else delete declared[name]; name = "" }
/;$/ { name = "" }
END {
    for (n in declared)
        if ((n in where) && room(where[n]) != said[n]) {
            print at[n] ": " n " is defined in " where[n] ", another room"; bad = 1
        } else if ((n in where) && declared[n] != "" && index(" " declared[n], base(where[n])) == 0) {
            print at[n] ": " n " is defined in " where[n] ", not where its head says"; bad = 1
        }
    exit bad
}' $(git ls-files 'src/*.h' 'src/*.c')
