#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The files of src/plan, src/price and src/search call each other one way: none needs, through others, itself; and none
# needs a file of a room below its own. Read off the objects in BUILD. Usage: tools/lint_circles.sh [BUILD]
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
objects=$(ls "$build"/CMakeFiles/sherd_room_plan.dir/src/plan/*.o "$build"/CMakeFiles/sherd_room_price.dir/src/price/*.o \
    "$build"/CMakeFiles/sherd_room_search.dir/src/search/*.o 2>/dev/null)
[ -n "$objects" ] || { echo "skipped: there are no objects in $build"; exit 0; }
for object in $objects; do
    source=${object#*.dir/}
    [ -f "${source%.o}" ] || continue # left over from a file that is gone
    nm "$object" | awk -v file="${source%.o}" 'NF == 3 && $2 ~ /[TRDB]/ { print "has", file, $3 }
        NF == 2 && $1 == "U" && $2 ~ /^sherd/ { print "needs", file, $2 }'
done | awk '
BEGIN { place["plan"] = 1; place["price"] = 2; place["search"] = 3 }
function room(file,    at) { split(file, at, "/"); return at[2] }
function reach(file, from,    list, count, i) {
    seen[file] = 1
    count = split(edges[file], list, " ")
    for (i = 1; i <= count; i++) {
        if (list[i] == from) { print from ": needs itself, through " file; bad = 1 }
        else if (!(list[i] in seen)) reach(list[i], from)
    }
}
$1 == "has" { home[$3] = $2; files[$2] = 1 }
$1 == "needs" { user[++needs] = $2; name[needs] = $3 }
END {
    for (i = 1; i <= needs; i++) {
        to = home[name[i]]
        if (to == "" || to == user[i] || (user[i], to) in known) continue
        known[user[i], to] = 1
        edges[user[i]] = edges[user[i]] " " to
        if (place[room(to)] > place[room(user[i])]) { print user[i] ": needs " to ", of a room below"; bad = 1 }
    }
    for (file in files) { split("", seen); reach(file, file) }
    exit bad
}'
