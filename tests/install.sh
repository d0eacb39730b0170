#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the library into a temporary folder, moves that elsewhere, and builds examples/hello.c against it as a user
# would: by find_package and by pkg-config where that is there, shared and static. Each must run on four ranks.
# Usage: tests/install.sh SOURCE BUILD; the parts that are installed must have been built.
set -eu
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A launcher around this test, or a user's tree, must not be found in the place of what was installed.
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH SHERD_ARENA_FD 2>/dev/null || :

fail() {
    echo "install: $*" >&2
    exit 1
}

quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$* failed"; }
}

# The output of hello, with its ranks started by itself and by the installed launcher.
check() {
    printf 'f32[6,5] P(sum:x) on (x=4)\nf32[6,5] on (x=4) = 4\n' >"$work/wanted"
    "$@" >"$work/seen" 2>&1 || { cat "$work/seen" >&2; fail "$* failed"; }
    cmp -s "$work/wanted" "$work/seen" || { cat "$work/seen" >&2; fail "$*: another output"; }
    "$work/there/bin/sherd" run -n 4 -- "$@" >"$work/seen" 2>&1 || fail "under sherd run: $* failed"
    cmp -s "$work/wanted" "$work/seen" || { cat "$work/seen" >&2; fail "under sherd run: another output"; }
}

quietly cmake --install "$build" --prefix "$work/here"
mv "$work/here" "$work/there"
for file in include/sherd.h include/sherd/world.h bin/sherd share/doc/sherd/LICENSE; do
    [ -f "$work/there/$file" ] || fail "$file is not installed"
done

# Two folders of one project: each finds the package for itself.
mkdir -p "$work/user/shared" "$work/user/static"
cp "$source/examples/hello.c" "$work/user"
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C CXX)
add_subdirectory(shared)
add_subdirectory(static)
END
for kind in shared static; do
    [ $kind = static ] && components="COMPONENTS static" language=cpp || components= language=c
    cat >"$work/user/$kind/CMakeLists.txt" <<END
find_package(sherd 0.1 REQUIRED $components)
add_executable(hello_$kind ../hello.c)
target_link_libraries(hello_$kind PRIVATE sherd::sherd)
foreach(mpi openmpi mpich)
    if(TARGET sherd::mpi_\${mpi})
        add_executable(with_\${mpi}_$kind ../with_mpi.$language)
        target_link_libraries(with_\${mpi}_$kind PRIVATE sherd::mpi_\${mpi})
    endif()
endforeach()
find_package(sherd QUIET COMPONENTS nonsense)
if(sherd_FOUND)
    message(FATAL_ERROR "sherd has a component that there is not")
endif()
END
done
# A program that leaves its folder before it opens its world.
cat >"$work/user/away.c" <<'END'
#include <sherd.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;
    int gone = chdir("/");
    sherd_status status = sherd_world_open(&world, &(sherd_world_options){.error = text});

    printf("%d ranks%s\n", sherd_world_ranks(world), text);
    status = status ? status : sherd_world_close(world);
    return gone || status != SHERD_OK;
}
END
cat >>"$work/user/static/CMakeLists.txt" <<'END'
add_executable(away ../away.c)
target_link_libraries(away PRIVATE sherd::sherd)
END
# A program that uses MPI itself; alone it is a job of one rank.
cat >"$work/user/with_mpi.c" <<'END'
#include <mpi.h>
#include <sherd.h>
#include <sherd/mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    sherd_world *world = NULL;

    MPI_Init(&argc, &argv);
    sherd_status status = sherd_world_open_mpi(&world, MPI_COMM_WORLD, NULL);
    printf("%d ranks\n", sherd_world_ranks(world));
    status = status ? status : sherd_world_close(world);
    MPI_Finalize();
    return status != SHERD_OK;
}
END
# As C++, whose bindings of old MPIs are in a library that sherd does not bring along.
sed 's/NULL;/nullptr;/' "$work/user/with_mpi.c" >"$work/user/with_mpi.cpp"
quietly cmake -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/there"
quietly cmake --build "$work/user/build"
check "$work/user/build/shared/hello_shared"
check "$work/user/build/static/hello_static"

# The module lies beside a program in the tree, and not where it was configured; the program has the library in itself, is
# named relatively, and has left its folder.
mkdir "$work/mpi" && export OMPI_MCA_orte_tmpdir_base="$work/mpi" # not the folder of another launcher that starts now
for module in "$work"/there/lib*/sherd/sherd_mpi_*.so "$work"/there/lib/*/sherd/sherd_mpi_*.so; do
    kind=${module##*/sherd_mpi_} kind=${kind%.so}
    [ -f "$module" ] && command -v "mpirun.$kind" >/dev/null 2>&1 || continue
    for with in shared static; do
        "$work/user/build/$with/with_${kind}_$with" >"$work/seen" 2>&1 || { cat "$work/seen" >&2; fail "with_${kind}_$with failed"; }
        grep -qx '1 ranks' "$work/seen" || { cat "$work/seen" >&2; fail "with_${kind}_$with: another output"; }
    done
    cp "$work/user/build/static/away" "$work/there/bin/away"
    (cd "$work/there/bin" && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 && "mpirun.$kind" -n 2 ./away) >"$work/seen" 2>&1 ||
        { cat "$work/seen" >&2; fail "a program beside the module for $kind failed"; }
    [ "$(grep -cx '2 ranks' "$work/seen")" = 2 ] || { cat "$work/seen" >&2; fail "beside the module for $kind: another output"; }
done

command -v pkg-config >/dev/null 2>&1 || { echo "install: no pkg-config here, so it was not tried"; exit 0; }
pc=$(find "$work/there" -name sherd.pc)
[ -n "$pc" ] || fail "sherd.pc is not installed"
export PKG_CONFIG_PATH="${pc%/*}"
flags=$(pkg-config --cflags --libs sherd)
quietly ${CC:-cc} "$work/user/hello.c" -o "$work/user/hello" $flags
check env LD_LIBRARY_PATH="$(pkg-config --variable=libdir sherd)" "$work/user/hello"
# The same by each MPI that sherd was built with.
for module in "$work"/there/lib*/sherd/sherd_mpi_*.so "$work"/there/lib/*/sherd/sherd_mpi_*.so; do
    [ -f "$module" ] || continue
    kind=${module##*/sherd_mpi_} kind=${kind%.so}
    pkg-config --exists "sherd-mpi-$kind" || fail "sherd-mpi-$kind.pc is not installed"
    for with in "${CC:-cc} $work/user/with_mpi.c" "${CXX:-c++} $work/user/with_mpi.cpp"; do
        quietly $with -o "$work/user/with_$kind" $(pkg-config --cflags --libs "sherd-mpi-$kind")
        LD_LIBRARY_PATH="$(pkg-config --variable=libdir sherd)" "$work/user/with_$kind" >"$work/seen" 2>&1 ||
            { cat "$work/seen" >&2; fail "a program with $kind failed"; }
        grep -qx '1 ranks' "$work/seen" || { cat "$work/seen" >&2; fail "a program with $kind: another output"; }
    done
done
# Only the static library is there.
mkdir "$work/alone"
cp "$(find "$work/there" -name libsherd.a)" "$work/alone"
flags=$(pkg-config --static --cflags --libs sherd | sed "s|-L[^ ]*|-L$work/alone|")
quietly ${CC:-cc} "$work/user/hello.c" -o "$work/user/hello_alone" $flags
check "$work/user/hello_alone"
