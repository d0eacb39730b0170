#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Include direction. A room includes rooms above it in the list; public headers include public headers;
# examples and stress (but for its inside.c) include sherd.h, the C library and their own files, examples jansson.h and png.h too.
cd "$(dirname "$0")/.." || exit 2
grep -nE '^[ \t]*#[ \t]*include' $(tools/sources.sh c) /dev/null | awk -v rooms="$(tools/rooms.sh)" '
BEGIN {
    count = split(rooms " carrier", order, " ")
    for (i = 1; i <= count; i++)
        place[order[i]] = i
    libc = "^(sys/.*|assert|ctype|dirent|errno|fcntl|float|getopt|glob|inttypes|limits|locale|math|signal|" \
           "stdarg|stdbool|stddef|stdint|stdio|stdlib|string|strings|termios|time|unistd)[.]h$"
}
function say(what) { print file ":" line ": " what; bad = 1 }
{
    split($0, part, ":"); file = part[1]; line = part[2]
    name = $0; sub(/^[^<"]*[<"]/, "", name); sub(/[>"].*$/, "", name)
    quoted = $0 ~ /#[ \t]*include[ \t]*"/
    if (quoted && name ~ /[.][.]/)
        say("no .. in an include: \"" name "\"")
    if (file ~ /^src\//) {
        split(file, at, "/"); room = at[2]; split(name, to, "/")
        if (at[4] != "") say("files are never deeper than src/<room>/")
        else if (!(room in place)) say("src/" room " is no room")
        else if (quoted && to[2] != "" && to[1] != "sherd" && !(to[1] in place)) say(to[1] " is no room; what is not ours is included with <>")
        else if (quoted && (to[1] in place) && place[to[1]] > place[room])
            say(room " may not include " to[1] ": it lies below in the list of rooms")
    } else if (file ~ /^include\/sherd\// && quoted && name !~ /^[a-z_]+[.]h$/)
        say("a public header includes public headers only, not \"" name "\"")
    else if (file ~ /^examples\//) {
        if (!quoted && name != "sherd.h" && name != "jansson.h" && name != "png.h" && name !~ libc)
            say("an example includes sherd.h, jansson.h, png.h and the C library only, not <" name ">")
        if (quoted && name != "sherd.h" && name ~ /\//)
            say("an example includes its own files and sherd.h only, not \"" name "\"")
    } else if (file ~ /^stress\// && file != "stress/inside.c" && name ~ /\// && name !~ libc)
        say("stress includes its own files, sherd.h and the C library only, not " name)
}
END { exit bad }'
