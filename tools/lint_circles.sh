#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No file of src/ needs one of a room below its own, but for the values of operators: apply/ lists them, and they have all
# their functions in them. The files of src/plan, src/price and src/search call each other one way too: none needs, through
# others, itself. Read off the objects in BUILD. Usage: tools/lint_circles.sh [BUILD]
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
    straight["plan"] = straight["price"] = straight["search"] = 1
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
        if (to == "" || to == user[i])
            continue
        if (place[room(to)] > place[room(user[i])] && name[i] !~ /_ops?$/) {
            print user[i] ": needs " name[i] " of " to ", a room below"
            bad = 1
        }
        if (room(user[i]) in straight && !((user[i], to) in known))
            edges[user[i]] = edges[user[i]] " " to
        known[user[i], to] = 1
    }
    for (file in files)
        if (room(file) in straight) { split("", seen); reach(file, file) }
    exit bad
}'
