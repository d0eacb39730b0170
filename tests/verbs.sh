#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several verbs of one call of make go one after the other, also with -j: two builds in one folder write each other's files.
# Builds nothing: cmake is one that looks whether another is at work.
# Usage: tests/verbs.sh SOURCE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/cmake" <<END
#!/bin/sh
mkdir "$work/busy" 2>/dev/null || echo two >"$work/bad"
sleep 0.05
rmdir "$work/busy" 2>/dev/null || :
END
printf '#!/bin/sh\nexit 1\n' >"$work/apt-get"
chmod +x "$work/cmake" "$work/apt-get"
command -v make >/dev/null 2>&1 || { echo "verbs: skipped, there is no make here"; exit 0; }
unset MAKEFLAGS MAKELEVEL MFLAGS 2>/dev/null || :
PATH="$work:$PATH" make -s -j4 -C "$1" BUILD="$work/build" all run heat >/dev/null 2>&1 || :
[ ! -e "$work/bad" ] || { echo "verbs: two builds at once in one folder" >&2; exit 1; }
[ -d "$work/build" ] || { echo "verbs: nothing was configured" >&2; exit 1; }
