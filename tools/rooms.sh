#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the rooms of src/, each before those that may include and call it, as CMakeLists.txt lists them.
cd "$(dirname "$0")/.." || exit 2
tr '\n' ' ' <CMakeLists.txt | sed -E 's/^.*set\(SHERD_ROOMS ([^)]*)\).*$/\1/; s/ +/ /g'
