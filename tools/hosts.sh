#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program under mpirun over 2 to 4 "hosts" that are made for it on this machine: network namespaces, joined by a bridge,
# each with a link of a given delay and rate, and cores of its own where there are as many. Ranks of one believe to be on a machine
# of their own (SHERD_HOST): those of different ones send messages, over TCP. Wants root; leaves nothing. "skipped: ..." if it can not.
# Usage: tools/hosts.sh openmpi|mpich HOSTS RANKS-OF-EACH [DELAY|-] [RATE|-] -- PROGRAM [ARGUMENTS]
#        tools/hosts.sh openmpi 2 2 50us 1gbit -- build/examples/gpt --mesh dp=2,tp=2 --steps 3
set -u
self=$0

# What the launchers call in the place of ssh: HOST COMMAND...
if [ "${1:-}" = --agent ]; then
    shift
    while [ "${1#-}" != "$1" ]; do shift; done # options of ssh
    address=$1
    shift
    exec ip netns exec "$SHERD_HOSTS_NAME${address##*.}" sh -c "$*"
fi
# What they start: a rank that knows its host, on that host's cores: one that believes to have those of others spins where it
# should let them run.
if [ "${1:-}" = --rank ]; then
    shift
    SHERD_HOST=$(ip netns identify $$)
    export SHERD_HOST
    first=$(((${SHERD_HOST##*n} - 1) * SHERD_HOSTS_CORES))
    [ "$SHERD_HOSTS_CORES" -eq 0 ] || set -- taskset -c $first-$((first + SHERD_HOSTS_CORES - 1)) "$@"
    exec "$@"
fi

[ $# -ge 4 ] || { sed -n '5,7s/^# //p' "$0"; exit 2; }
kind=$1 hosts=$2 each=$3
shift 3
delay=- rate=-
[ "$1" = -- ] || { delay=$1; shift; }
[ "$1" = -- ] || { rate=$1; shift; }
shift
mpirun=$(command -v "mpirun.$kind") || { echo "skipped: there is no mpirun.$kind"; exit 0; }
[ "$(id -u)" -eq 0 ] && command -v ip >/dev/null && ip netns list >/dev/null 2>&1 ||
    { echo "skipped: hosts want root and ip netns"; exit 0; }

export SHERD_HOSTS_NAME="sherd$$n" SHERD_HOSTS_CORES=$(($(nproc) / hosts))
bridge=sh$$b
names= ssh=$(mktemp)
clean() {
    for name in $names; do ip netns del "$name" 2>/dev/null; done
    ip link del "$bridge" 2>/dev/null
    rm -f "$ssh"
}
trap clean EXIT
trap 'exit 130' INT TERM

# What a link carries in some 0.1 ms, at most a largest packet, at least a smallest: what may go at once after a pause (htb's
# burst), and how long a packet is. A bucket of half a MiB, which tbf had here, let through 4 ms of 1 Gbit/s at once.
unit_of() {
    case $1 in
    *gbit) unit=$((${1%gbit} * 1000000000 / 65536)) ;;
    *mbit) unit=$((${1%mbit} * 1000000 / 65536)) ;;
    *) unit=65536 ;;
    esac
    [ "$unit" -le 65536 ] || unit=65536
    [ "$unit" -ge 2048 ] || unit=2048
}

# The delay is netem's, which not every kernel has; a rate alone is htb's.
shape() {
    if [ "$delay" != - ]; then
        [ "$rate" = - ] && limit= || limit="rate $rate"
        ip netns exec "$1" tc qdisc add dev eth0 root netem delay "$delay" $limit limit 100000
    elif [ "$rate" != - ]; then
        unit_of "$rate"
        ip -n "$1" link set eth0 gso_max_size "$unit" &&
            ip netns exec "$1" tc qdisc add dev eth0 root handle 1: htb default 1 &&
            ip netns exec "$1" tc class add dev eth0 parent 1: classid 1:1 htb \
                rate "$rate" burst "$unit" cburst "$unit" quantum 60000
    fi
}

ip link add "$bridge" type bridge 2>/dev/null && ip link set "$bridge" up ||
    { echo "skipped: no bridge can be made here"; exit 0; }
list=
for i in $(seq 1 "$hosts"); do
    name=$SHERD_HOSTS_NAME$i
    ip netns add "$name" && names="$names $name" &&
        ip link add "sh$$v$i" type veth peer name eth0 netns "$name" &&
        ip link set "sh$$v$i" master "$bridge" up &&
        ip -n "$name" addr add "10.77.0.$i/24" dev eth0 &&
        ip -n "$name" link set eth0 up && ip -n "$name" link set lo up ||
        { echo "skipped: no network namespaces can be made here"; exit 0; }
    shape "$name" || { echo "skipped: a link can not be given a delay of $delay and a rate of $rate here"; exit 0; }
    list=$list${list:+,}10.77.0.$i:$each
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
agent=$(cd "$(dirname "$self")" && pwd)/hosts.sh
ranks=$((hosts * each))
if [ "$kind" = openmpi ]; then
    # All ranks in one session: where a kernel shares cores out among sessions, a yield does not reach the other ones.
    exports=
    for word in $(env | sed -n 's/^\(SHERD_[A-Z_]*\)=.*/\1/p'); do exports="$exports -x $word"; done
    ip netns exec "${SHERD_HOSTS_NAME}1" "$mpirun" -n $ranks --host "$list" $exports --oversubscribe --bind-to none \
        --mca plm_rsh_agent "$agent --agent" --mca plm_rsh_no_tree_spawn 1 --leave-session-attached --mca btl self,tcp \
        --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 "$agent" --rank "$@"
else
    printf '#!/bin/sh\nexec %s --agent "$@"\n' "$agent" >"$ssh" && chmod +x "$ssh"
    # It would find that all hosts are one machine, and use its memory.
    export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 FI_PROVIDER=tcp MPIR_CVAR_NOLOCAL=1
    ip netns exec "${SHERD_HOSTS_NAME}1" "$mpirun" -n $ranks -hosts "$list" \
        -launcher ssh -launcher-exec "$ssh" -iface eth0 "$agent" --rank "$@"
fi
