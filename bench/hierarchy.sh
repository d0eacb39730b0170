#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hosts that are made on this machine (tools/hosts.sh: root only), their links measured, and moves by plans for them beside
# the direct ones: what was predicted, and what they take. Calibrates and runs ROUNDS times.
# Usage: bench/hierarchy.sh [BUILD [openmpi|mpich [HOSTS [RANKS-OF-EACH [RATE [MiB [ROUNDS [--steps]]]]]]]]
build=$(cd "${1:-build}" && pwd) || exit 2
kind=${2:-openmpi} hosts=${3:-2} each=${4:-2} rate=${5:-1gbit} most=${6:-64} rounds=${7:-1} steps=${8:-}
tools=$(cd "$(dirname "$0")/../tools" && pwd)
mesh=host=$hosts,local=$each
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset SHERD_PRICE
for i in $(seq 1 "$rounds"); do
    "$tools/hosts.sh" "$kind" "$hosts" "$each" - "$rate" -- "$build/sherd" check --calibrate "$folder/prices" --mesh "$mesh" || exit
    [ -e "$folder/prices" ] || exit 0 # skipped, and said so
    SHERD_PRICE=$folder/prices "$tools/hosts.sh" "$kind" "$hosts" "$each" - "$rate" -- "$build/bench/hierarchy" "$mesh" "$most" $steps || exit
done
