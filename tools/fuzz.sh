#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds fuzz/ with clang and both sanitizers into build-fuzz/ and runs its targets one after the other, each for
# SECONDS, from fuzz/seeds/ and from what earlier runs found worth keeping (build-fuzz/corpus/). An input that
# breaks something is left in build-fuzz/found/; give it to build-fuzz/fuzz_NAME to see it again.
# Usage: tools/fuzz.sh SECONDS JOBS [NAME...], for example tools/fuzz.sh 60 2 mesh layout
cd "$(dirname "$0")/.." || exit 2
seconds=$1 jobs=$2
shift 2
build=build-fuzz

# Debian's clang may be there under a name with its version only.
for clang in ${CLANG:-clang clang-19 clang-16 clang-14}; do
    command -v "$clang" >/dev/null 2>&1 && break
    clang=
done
[ -n "$clang" ] || { echo "make fuzz needs clang, and there is none here: apt-get install clang"; exit 1; }
version=$("$clang" -dumpversion | cut -d. -f1)
mkdir -p $build/found || exit 1
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
    "$clang" -x c - -fsanitize=fuzzer,address,undefined -o $build/probe 2>$build/probe.log || {
    echo "$clang has no libFuzzer or sanitizers here: apt-get install libclang-rt-$version-dev"
    exit 1
}
cmake -S . -B $build -DCMAKE_C_COMPILER="$clang" -DBUILD_TESTING=OFF \
    -DSHERD_FUZZ=ON -DSHERD_SANITIZE=address,undefined >$build/configure.log 2>&1 || {
    cat $build/configure.log
    exit 1
}
cmake --build $build --parallel "$jobs" --target fuzz || exit 1

[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's|fuzz/fuzz_||; s|[.]c$||')
bad=0
for name in "$@"; do
    mkdir -p $build/corpus/"$name"
    if $build/fuzz_"$name" -max_total_time="$seconds" -max_len=400 -timeout=20 -rss_limit_mb=2048 \
        -dict=fuzz/words.dict -artifact_prefix=$build/found/"$name"- -print_final_stats=1 \
        $build/corpus/"$name" fuzz/seeds/"$name" >$build/"$name".log 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' $build/"$name".log)
        echo "$name: nothing found in $runs runs"
    else
        echo "$name: FAILED, see $build/$name.log"
        grep -E 'does not hold|SUMMARY|Test unit written' $build/"$name".log | sed 's/^/  /'
        bad=1
    fi
done
exit $bad
