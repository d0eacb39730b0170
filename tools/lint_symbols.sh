#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the shared library exports is exactly tools/symbols.txt, every name begins with sherd_ (and not with
# sherd__, which is internal), names shared between files begin with sherd_, and no object of ours has
# writable data.
# Usage: tools/lint_symbols.sh [--write] [BUILD]; --write makes the list anew.
cd "$(dirname "$0")/.." || exit 2
list=tools/symbols.txt
[ "${1:-}" = --write ] && { write=1; shift; }
library=${1:-build}/libsherd.so
[ -e "$library" ] || { echo "$library is not there: build first"; exit 1; }
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
if [ -n "${write:-}" ]; then
    echo "$exported" >$list
    exit 0
fi
bad=0
echo "$exported" | grep -vE '^sherd_[a-z0-9]' | sed 's/^/exported, but not by our rules: /' | grep . && bad=1
if [ "$exported" != "$(cat $list)" ]; then
    echo "$exported" | diff $list - | sed -n 's/^</gone:/p; s/^>/new:/p'
    echo "if that is meant: make symbols"
    bad=1
fi
# What mpi.h declares is in libraries of its own.
declared=$(ls include/sherd/*.h | grep -v '/mpi.h$' |
    xargs sed -nE 's/^SHERD_(API|CALL) .*[ *](sherd_[a-z0-9_]+)\(.*/\2/p' | sort)
echo "$declared" | diff - $list | sed -n 's/^</declared, not exported:/p; s/^>/exported, not declared:/p' | grep . && bad=1
# Constant tables with pointers lie in .data.rel.ro; all other .data and .bss, and their thread-local twins,
# can be written.
objects=$(find "${1:-build}"/CMakeFiles/sherd_room_*.dir -name '*.o' 2>/dev/null)
nm -g --defined-only $objects | awk 'NF == 3 && $3 !~ /^sherd_/ {
    print "shared between files, but not by our rules: " $3; bad = 1 } END { exit bad }' || bad=1
for object in $objects; do
    objdump -t "$object" | awk -v file="$object" '
        { for (i = 2; i < NF; i++)
              if ($i ~ /^([.](t?data|t?bss)|[*]COM[*])/ && $i !~ /^[.]data[.]rel[.]ro/ && $NF !~ /^[.]/) {
                  print file ": data that can be written: " $NF
                  bad = 1
              } }
        END { exit bad }' || bad=1
done
exit $bad
