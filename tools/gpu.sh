#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of GPUs on a real one, several at a time: those of the room, then those that know nothing of GPUs.
#   tools/gpu.sh [BUILD] [WORDS]    programs whose name has one of WORDS (a pattern of grep -E); by default all
# Prints a line for each; what it said is in BUILD/gpu/NAME.log. Each program compiles its kernels first: a minute for
# those with hundreds.
if [ "$1" = --one ]; then # BUILD DEVICE NAME[:TESTS]
    name=${4%%:*}
    begin=$(date +%s)
    if SHERD_CUDA_LIBRARY='' SHERD_DEVICE=$3 timeout "${SHERD_GPU_SECONDS:-300}" "$2/$name" $(echo "${4#"$name"}" | tr -d :) >"$2/gpu/$name.log" 2>&1; then
        state=ok
    else
        state="FAILED $?: $(grep -m1 -E 'rank [0-9]|FAILED|rror' "$2/gpu/$name.log" | cut -c1-160)"
    fi
    printf '%-34s %4d s  %s\n' "$name" $(($(date +%s) - begin)) "$state"
    [ "$state" = ok ]
    exit
fi
build=${1:-build}
words=${2:-.}
mkdir -p "$build/gpu"
{
    for program in "$build"/test_device_*; do
        case $program in *.*) ;; *) echo "cpu ${program##*/}" ;; esac
    done
    sed -n 's/^# gpu: //p' "$build/gpu_tests.txt" | tr ' ' '\n' | sed 's/^/cuda /'
} | grep -E "$words" | xargs -P "$(nproc)" -L 1 "$0" --one "$build"
