#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/bootstrap.sh finds compilers that are several words, "ccache gcc": it says the same as of one word, and wants to install
# no more. Installs nothing: apt-get is one that fails.
# Usage: tests/bootstrap.sh SOURCE
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '#!/bin/sh\nexit 1\n' >"$work/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$work/cache"
chmod +x "$work/apt-get" "$work/cache"

# seen FILE CC CXX: what it says, and how it ends
seen() {
    CC=$2 CXX=$3 PATH="$work:$PATH" sh "$source/tools/bootstrap.sh" >"$work/$1" 2>&1 && echo good >>"$work/$1" || echo bad >>"$work/$1"
}

seen one cc c++
seen several "cache cc" "cache c++"
cmp -s "$work/one" "$work/several" || { cat "$work/several" >&2; echo "bootstrap: it does not find a compiler of two words" >&2; exit 1; }
seen none "nothing cc" c++
grep -q 'a C11 compiler' "$work/none" || { echo "bootstrap: it finds a compiler that there is not" >&2; exit 1; }
