#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, as C99 and as C++17, guards.hpp as any C++ by each compiler that is here, with and without exceptions and RTTI; sherd/mpi.h where there is MPI, whose own header is not ours to judge.
# And files that use oneDNN compile without it.
cd "$(dirname "$0")/.." || exit 2
warn='-Wall -Wextra -Wpedantic -Wshadow -pedantic-errors -Werror -fsyntax-only -Iinclude'
bad=0
mpi=
for folder in $(mpicc -show 2>/dev/null); do
    case $folder in -I*) mpi="$mpi -isystem ${folder#-I}" ;; esac
done
for header in include/sherd.h include/sherd/*.h; do
    [ "$header" = include/sherd/mpi.h ] && { [ "$mpi" ] || continue; warn="$warn $mpi"; }
    echo "#include \"${header#include/}\"" | ${CC:-cc} -std=c99 $warn -x c - || bad=1
    echo "#include \"${header#include/}\"" | ${CXX:-c++} -std=c++17 $warn -x c++ - || bad=1
done
for cxx in "${CXX:-c++}" g++ clang++; do
    command -v "${cxx%% *}" >/dev/null || continue
    for std in 11 14 17 20; do
        for without in '' '-fno-exceptions -fno-rtti'; do
            echo '#include "sherd/guards.hpp"' | $cxx -std=c++$std $without -Wconversion $warn -x c++ - || bad=1
        done
    done
done
# Something must be left of each: an empty file is no C.
for file in $(grep -rl --include='*.c' SHERD_HAVE_DNNL src); do
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -Isrc "$file" || bad=1
done
exit $bad
