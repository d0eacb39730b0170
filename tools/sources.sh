#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the files that lint looks at, one a line: `c` = C, C++ and CUDA sources, `text` = all that people write.
# What git knows or would know; without git whatever lies in the project's folders.
cd "$(dirname "$0")/.." || exit 2
folders="include src cli examples tests bench fuzz stress"
case $1 in
c) pattern='\.(c|h|hpp|inc|cpp|cu|cuh)$' ;;
*) pattern='(\.(c|h|hpp|inc|cpp|cu|cuh|sh|md|py|in|cmake)|CMakeLists\.txt|Makefile|\.ci/run)$' folders=. ;;
esac
{ git ls-files --cached --others --exclude-standard $folders 2>/dev/null ||
    find $folders -path './build*' -prune -o -type f -print 2>/dev/null | sed 's|^\./||'; } |
    grep -E "$pattern" | sort -u | while read -r file; do [ -f "$file" ] && echo "$file"; done
