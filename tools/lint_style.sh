#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A licence line first, no notes to do later, no tabs in C, no trailing blanks, #if only where it belongs.
cd "$(dirname "$0")/.." || exit 2
awk '
function say(what) { print FILENAME ":" FNR ": " what; bad = 1 }
FNR == 1 { licence = 0; c = FILENAME ~ /[.](c|h|inc|cpp|cu|cuh)$/; prose = FILENAME ~ /[.]md$/ }
FNR <= 2 && /SPDX-License-Identifier: Apache-2[.]0/ { licence = 1 }
FNR == 1 && c && !licence { say("the first line must be /* SPDX-License-Identifier: Apache-2.0 */") }
FNR == 2 && !c && !prose && !licence { say("no SPDX-License-Identifier line at the top") }
/(^|[^A-Za-z])(TO[D]O|FIX[M]E|XX[X])([^A-Za-z]|$)/ { say("finish it, or file it: no notes to do later") }
/[ \t]$/ { say("trailing blanks") }
c && /\t/ { say("a tab") }
/^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)/ && FILENAME ~ /^(src|include|cli|examples)\// {
    guard = $0 ~ /^#ifndef [A-Z0-9_]+_H$/
    if (!guard && FILENAME !~ /^src\/(base|world|launch|kernels|vector)\/|[.]cuh?$/ && FILENAME !~ /^include\/sherd\/(status[.]h|random[.]h|guards[.]hpp)$/)
        say("#if belongs in base/, world/, launch/, kernels/, vector/ and programs for GPUs only: choose by file")
}
END { exit bad }' $(tools/sources.sh text)
