#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public function stands right under a /** comment with @collective or @local, @errors, and @owns where
# it returns a pointer.
cd "$(dirname "$0")/.." || exit 2
awk '
function say(what) { print FILENAME ":" FNR ": " what; bad = 1 }
FNR == 1 { doc = ""; inside = 0 }
/^\/\*\*/ { doc = ""; inside = 1 }
inside { doc = doc $0 "\n"; if ($0 ~ /\*\//) inside = 0; next }
/^SHERD_(API|CALL) / {
    head = $0; sub(/\(.*/, "", head)
    name = head; sub(/.*[ *]/, "", name)
    text = doc; gsub(/[\/* \n]/, "", text); sub(/@.*/, "", text)
    if (doc == "") say(name ": no /** comment right above")
    else {
        if (text == "") say(name ": the comment does not say what it does")
        if ((doc ~ /@collective/) + (doc ~ /@local/) != 1) say(name ": exactly one of @collective, @local")
        if (doc !~ /@errors/) say(name ": no @errors")
        if (head ~ /\*/ && doc !~ /@owns/) say(name ": returns a pointer, no @owns")
    }
}
{ doc = "" }
END { exit bad }' include/sherd/*.h
