#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The example in README.md is examples/hello.c, letter by letter below its first comment.
cd "$(dirname "$0")/.." || exit 2
shown=$(awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md)
real=$(awk 'on || /^#include/ { on = 1; print }' examples/hello.c)
[ "$shown" = "$real" ] && exit 0
printf '%s\n' "$shown" | diff - /dev/fd/3 3<<END | sed 's/^/  /'
$real
END
echo "the C block in README.md must be examples/hello.c"
exit 1
