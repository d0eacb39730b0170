#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same tests that ranks of an arena pass, on ranks that mpirun starts: by messages (SHERD_TRANSPORT=mpi) and, where that is
# said, in the arena of one machine, mixed (the last rank believes to be on another machine than all others), or on two hosts
# with half of the ranks each (tools/hosts.sh: root only), or by messages in parts of a few bytes; with each MPI that is here. Rank counts are those of the tests' own tables.
# Usage: tests/conformance.sh BUILD short|long; SHERD_CONFORMANCE="mpich mpi" for one MPI, or one transport only.
hosts=$(cd "$(dirname "$0")/../tools" && pwd)/hosts.sh
cd "$1" || exit 2
long=$2 only=" ${SHERD_CONFORMANCE:-openmpi mpich mpi parts arena mixed hosts} "
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS=detect_leaks=0 SHERD_TEST_AS=mpi SHERD_TIMEOUT=${SHERD_TIMEOUT:-60}
logs=$(mktemp -d)
export OMPI_MCA_orte_tmpdir_base="$logs" # not the folder of another launcher that starts now
trap 'rm -rf "$logs"' EXIT

# Who sends its data waits for no reader to overwrite it: what is said of writers who wait does not come about there. And what
# ranks tell each other through a word that threads share is not for processes. And messages take memory when it is their turn.
without="-halos_asked_for_again,settles_nothing,ring_over_three,a_writer_learns,what_a_record_carries,many_open_calls_is,too_many_open,nobody_waits_for_a_rank_that"

# start MPIRUN TRANSPORT TEST RANKS
start() {
    if [ "$2" = hosts ]; then
        "$hosts" "${1##*.}" 2 $(($4 / 2)) -- ./test_$3 $without
    elif [ "$2" = mixed ]; then
        $1 -n $(($4 - 1)) env SHERD_HOST=a ./test_$3 $without : -n 1 env SHERD_HOST=b ./test_$3 $without
    elif [ "$2" = parts ]; then
        SHERD_PART=24 SHERD_TRANSPORT=mpi $1 -n "$4" ./test_$3 $without
    else
        SHERD_TRANSPORT=$2 $1 -n "$4" ./test_$3 $without
    fi
}

# run TRANSPORT TEST RANKS...
run() {
    transport=$1 test=$2
    shift 2
    case $only in *" $transport "*) ;; *) return ;; esac
    for ranks; do
        ran=$((ran + 1))
        start "$mpirun" $transport "$test" "$ranks" >"$log" 2>&1 </dev/null && { grep skipped "$log"; continue; }
        echo "$test on $ranks ranks, $kind, $transport:"
        grep -v '^ok' "$log" | head -20
        bad=$((bad + 1))
    done
}

# is_wanted KIND: whether this MPI is here, and asked for
is_wanted() {
    case $only in *" $1 "*) ;; *) return 1 ;; esac
    command -v mpirun.$1 >/dev/null && [ -e sherd_mpi_$1.so ]
}

# is_for KIND: whether this suite runs what in the short form only that MPI runs, if it can
is_for() {
    [ "$long" = long ] || [ $kind = $1 ] || ! is_wanted $1
}

# suite KIND NUMBER: all of it, with one MPI
suite() {
    kind=$1 log=$logs/$1.log bad=0 ran=0
    is_wanted $kind || return 0
    mpirun=$(command -v mpirun.$kind)
    echo 1 1 >"$logs/$kind.count" # should it not come to its end
    export SHERD_TEST_RUN=$(($$ * 2 + $2)) # names the files of its tests
    is_for openmpi && run mpi world_programs 3
    is_for openmpi && run mixed world_failures 3
    is_for mpich && run mpi world_moves 4
    is_for mpich && run mixed world_moves 3
    is_for mpich && run parts tensor_move 2
    if [ "$long" = long ]; then
        run mpi tensor_many 72
        run mixed tensor_many 72
        run mpi world_programs 2
        run mpi world_failures 2 3 4
        run mpi world_random 2 3
        run mpi world_stuck 2
        run mpi world_counts 2 3
        run mpi world_moves 1 2 3 4
        run mpi world_store 2 3
        run mpi tensor_move 2 3 4
        run mpi tensor_links 2 3 4
        run mpi tensor_across 2 3 4
        run mpi tensor_later 2 3
        run mpi tensor_moves_kept 2 3
        run mpi tensor_whole 2 3
        run mpi tensor_local 2 3
        run mpi ops_redistribute 2 3 4
        run mpi ops_halo 2 3
        run mpi ops_points 2 3
        run mpi ops_groups 2 3
        run mpi ops_stencils 2 3
        run mpi nn_sharded 2 3
        run mpi nn_verify 2 3
        run mpi ops_opened 2 3
        run mpi io_files 2 3
        run mpi io_state 3
        run mpi parallel_divergence 2 3
        run mpi parallel_differences 2 3
        run mpi parallel_graphs 2 3
        run mpi parallel_mlp 2 3 4
        run mpi parallel_shard 2 3 4
        run mpi parallel_channel 2 3 4
        run mpi parallel_pipeline 2 3 4
        run mpi parallel_pipeline_failures 2 3
        for test in world_programs world_random tensor_move tensor_across tensor_whole ops_redistribute ops_halo nn_sharded \
            parallel_divergence parallel_differences parallel_graphs parallel_channel parallel_pipeline; do
            run mixed $test 3
        done
        for test in world_failures tensor_move parallel_mlp parallel_pipeline; do
            run hosts $test 2 4
        done
        for test in world_programs world_failures world_random tensor_move tensor_across ops_redistribute ops_halo \
            parallel_divergence parallel_differences parallel_graphs parallel_channel; do
            run parts $test 3
        done
        run parts tensor_move 4
        run hosts world_programs 2
        run hosts parallel_divergence 2
        run mixed world_failures 4
        run mixed tensor_links 4
        run hosts tensor_links 4
        run mixed tensor_move 4
        run mixed nn_verify 4
        run mixed ops_opened 4
        run mixed io_files 4
        run mixed parallel_mlp 4
        without=
        for test in world_programs world_failures world_random tensor_move parallel_divergence parallel_graphs; do
            run arena $test 2 3
        done
    fi
    echo "$ran $bad" >"$logs/$kind.count"
}

# Side by side, as launchers are asleep most of the time; not the long form, whose largest worlds fill the machine.
suite openmpi 0 &
[ "$long" = long ] && wait
suite mpich 1 &
wait
cat "$logs"/*.count >"$logs/all" 2>/dev/null || echo "skipped: no MPI here, or sherd was built without it"
ran=$(awk '{ n += $1 } END { print n + 0 }' "$logs/all") bad=$(awk '{ n += $2 } END { print n + 0 }' "$logs/all")
echo "conformance: $((ran - bad)) of $ran"
exit $bad
