#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No file of src/ needs one of a room below its own. Inside a room files need each other one way: none needs, through
# others, itself. What names of operators and hooks are for (..._op, ..._hooks) does not
# count: a file names such a value, and all its functions come with it. Where operators are made of operators (apply,
# ops, functional, norms, attention, fields), the public interface does not count either. Read off the objects in BUILD.
# Usage: tools/lint_circles.sh [BUILD]
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
rooms=$(tools/rooms.sh)
objects=$(for room in $rooms; do ls "$build/CMakeFiles/sherd_room_$room.dir/src/$room"/*.o 2>/dev/null; done)
[ -n "$objects" ] || { echo "skipped: there are no objects in $build"; exit 0; }
for object in $objects; do # not what is left over from files that are gone
    source=${object#*.dir/}
    [ -f "${source%.o}" ] && echo "$object"
done | xargs nm -A | awk -v rooms="$rooms" '
BEGIN {
    count = split(rooms, order, " ")
    for (i = 1; i <= count; i++)
        place[order[i]] = i
    split("apply ops functional norms attention fields", made, " ")
    for (i in made)
        composed[made[i]] = 1
}
function room(file,    at) { split(file, at, "/"); return at[2] }
function reach(file, from,    list, count, i) {
    seen[file] = 1
    count = split(edges[file], list, " ")
    for (i = 1; i <= count; i++) {
        if (list[i] == from) { print from ": needs itself, through " file; bad = 1 }
        else if (!(list[i] in seen)) reach(list[i], from)
    }
}
{
    file = $1
    sub(/^.*[.]dir\//, "", file); sub(/[.]o:.*$/, "", file)
    files[file] = 1
}
$2 ~ /^[TRDB]$/ { home[$3] = file }
$2 == "U" { user[++needs] = file; name[needs] = $3 }
END {
    for (i = 1; i <= needs; i++) {
        to = home[name[i]]
        if (to == "" || to == user[i] || name[i] ~ /_(op|ops|hooks)$/)
            continue
        if (place[room(to)] > place[room(user[i])]) {
            print user[i] ": needs " name[i] " of " to ", a room below"
            bad = 1
        }
        if (room(to) != room(user[i]) || (user[i], to) in known ||
            (room(to) in composed && name[i] !~ /^sherd__/))
            continue
        edges[user[i]] = edges[user[i]] " " to
        known[user[i], to] = 1
    }
    for (file in files) { split("", seen); reach(file, file) }
    exit bad
}'
