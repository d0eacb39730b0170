#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Configures a project that has sherd inside (add_subdirectory), in a path with a comma and without jansson: names of
# targets do not meet, the project gets neither tests nor a build type nor an installed sherd, and what can be built can
# be generated. And with an MPI in a folder whose name does not tell which it is, and from which the linker does not take
# libraries by itself when a program runs.
# Usage: tests/embedded.sh SOURCE
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "embedded: $*" >&2
    exit 1
}

ln -s "$source" "$work/a,b"
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(engine VERSION 9.9 LANGUAGES C)
include(CTest)
foreach(name tests parts fuzz stress cli_parts gpt_parts mpi_openmpi bench_calls)
    add_custom_target(${name})
endforeach()
add_subdirectory(a,b sherd)
file(WRITE ${PROJECT_BINARY_DIR}/engine.c "int main(void) { return 0; }\n")
add_executable(engine ${PROJECT_BINARY_DIR}/engine.c)
target_link_libraries(engine PRIVATE sherd::sherd)
get_target_property(in_one sherd_room_base UNITY_BUILD)
if(in_one)
    message(FATAL_ERROR "several files of sherd in one")
endif()
END
mkdir -p "$work/own/include"
echo '#define OPEN_MPI 1' >"$work/own/include/mpi.h"
cat >"$work/own/mpicc" <<END
#!/bin/sh
[ "\$1" != -show ] || { echo "cc -I$work/own/include -L$work/own/lib -Wl,-rpath -Wl,$work/own/lib -lmpi"; exit; }
exec ${CC:-cc} -I"$work/own/include" "\$@"
END
chmod +x "$work/own/mpicc"
cmake -S "$work" -B "$work/build" -DJANSSON_LIBRARY= -DCMAKE_UNITY_BUILD=ON -DSHERD_BUILD_EXAMPLES=ON -DSHERD_BUILD_BENCH=ON \
    -DMPICC_openmpi="$work/own/mpicc" -DMPICC_mpich="$work/own/mpicc" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "it can not be configured"; }
grep -q 'jansson is not here' "$work/log" || fail "what is left out without jansson is not said"
grep -rqe "-Wl,-rpath,$work/own/lib" "$work/build/sherd" || fail "what is built for an MPI does not find it when it runs"
(cd "$work/build" && ctest -N) | grep -q 'Total Tests: 0' || fail "it has tests of sherd"
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=$' "$work/build/CMakeCache.txt" || fail "it has another build type"
grep -q 'sherd\.h\|libsherd\|sherdConfig' "$work"/build/sherd/cmake_install.cmake && fail "it installs sherd"
# The texts for GPUs, of a folder with a comma.
cmake -DFROM="$work/a,b/src" -DFILES=kernels/functions.inc -DOUT="$work/te,xts.c" -P "$source/tools/embed.cmake"
grep -q '{"functions.inc", text_0}' "$work/te,xts.c" || fail "a text of a folder with a comma is not there"
