#!/bin/bash
# Runs a program by mpirun on "nodes" of one machine: network namespaces with separate host names, joined by a bridge.
# Ranks of a node share memory; ranks of different nodes communicate by TCP over links of this rate and delay.
# usage: bench/scaling/namespaces.sh --nodes N --ranks-per-node M [--rate 100mbit] [--delay 1ms] PROGRAM [ARGUMENT...]
# Needs root, iproute2 and Open MPI. The rate is that of each direction of each node's link; the delay is that of a message on
# its way from one node to another. tc's netem sets both. In a kernel without netem tc's tbf sets the rate, and the program
# delayed_link makes the delay: DELAYED_LINK names it, or it is next to the program that TRIREME names, or in build/release.
# Exit status 2: usage, 4: the machine cannot do it, else mpirun's. Every namespace is removed at the end, also after ^C.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Called by mpirun as the agent that starts its daemon on a node: --agent NODE COMMAND...
if [ "${1:-}" = --agent ]; then
  node=${TRIREME_NODES:?}-${2##*.}
  shift 2
  # shellcheck disable=SC2016  # the inner shell expands these
  exec ip netns exec "$node" unshare --uts sh -c 'hostname "$0" && eval "$*"' "$node" "$*"
fi

refuse() {  # STATUS TEXT
  echo "$2" >&2
  exit "$1"
}
nodes='' ranks='' rate='' delay=''
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=${2-} ;;
    --ranks-per-node) ranks=${2-} ;;
    --rate) rate=${2-} ;;
    --delay) delay=${2-} ;;
    -*) refuse 2 "There is no option $1. $(sed -n 's/^# usage: /usage: /p' "$0")" ;;
    *) break ;;
  esac
  shift 2 || refuse 2 "$1 needs a value."
done
[[ $# -gt 0 && $nodes =~ ^[1-9][0-9]?$ && $ranks =~ ^[1-9][0-9]*$ ]] ||
  refuse 2 "A program, 1 to 99 nodes and the ranks of each are needed. $(sed -n 's/^# usage: /usage: /p' "$0")"

delay_us=
[ -z "$delay" ] || delay_us=$(awk -v delay="$delay" 'BEGIN {
  unit["us"] = 1; unit["ms"] = 1000; unit["s"] = 1000000
  if (match(delay, /^[0-9.]+/)) amount = substr(delay, 1, RLENGTH)
  if (!(substr(delay, RLENGTH + 1) in unit) || amount !~ /[0-9]/) exit 1
  printf "%d", amount * unit[substr(delay, RLENGTH + 1)] }') || refuse 2 "--delay $delay is not a time: try 1ms or 50us."

export TRIREME_NODES=trireme-$$
# Removing a namespace removes its links; the processes inside end first.
clean_up() {
  local node
  for node in $(ip netns list 2>/dev/null | sed -n "s/^\($TRIREME_NODES-[^ ]*\).*/\1/p"); do
    ip netns pids "$node" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns delete "$node"
  done
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

message=$({ ip netns add "$TRIREME_NODES-switch"; } 2>&1) ||
  refuse 4 "Network namespaces are not permitted here: $message. Run this as root, outside of a container that forbids them."
ip -n "$TRIREME_NODES-switch" link add bridge type bridge && ip -n "$TRIREME_NODES-switch" link set bridge up ||
  refuse 4 "Making a bridge failed: this kernel has none, or it is not permitted."

# Program that delays messages if the kernel cannot.
delayed_link=
if [ -n "$delay" ] && ! tc -n "$TRIREME_NODES-switch" qdisc add dev lo root netem delay 1us 2>/dev/null; then
  for delayed_link in "${DELAYED_LINK:-}" "$(dirname "${TRIREME:-.}")/delayed_link" \
    "$here/../../build/release/delayed_link" ''; do
    [ ! -x "$delayed_link" ] || break
  done
  [ -n "$delayed_link" ] ||
    refuse 4 "--delay failed: this kernel has no netem. Build the target delayed_link, and set DELAYED_LINK to the program."
fi

# connect NODE: joins the node to the bridge, by eth0 there and a port here.
connect() {
  local name=$TRIREME_NODES-$1 switch=$TRIREME_NODES-switch ready
  if [ -z "$delayed_link" ]; then
    ip -n "$name" link add eth0 type veth peer name "port$1" netns "$switch" || return 1
  else
    # The devices are created next to the bridge, and the node's end moves to the node.
    exec 3< <(exec ip netns exec "$switch" "$delayed_link" "node$1" "port$1" "$delay_us")
    read -r -t 10 ready <&3 && [ "$ready" = ready ] && ip -n "$switch" link set "node$1" netns "$name" name eth0 || return 1
  fi
  ip -n "$switch" link set "port$1" master bridge up &&
    ip -n "$name" address add "10.77.0.$1/24" dev eth0 && ip -n "$name" link set lo up && ip -n "$name" link set eth0 up
}

# limit NAMESPACE LINK [DELAY]: sets the rate of messages that leave by the link, and their delay if the kernel can.
limit() {
  local by_kernel=${3:-}
  [ -z "$delayed_link" ] || by_kernel=
  [ -n "$rate$by_kernel" ] || return 0
  if tc -n "$1" qdisc add dev "$2" root netem ${by_kernel:+delay "$by_kernel"} ${rate:+rate "$rate"} limit 100000 2>/dev/null; then
    return 0
  fi
  tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst 128kb latency 1s 2>/dev/null ||
    refuse 4 "Setting the rate $rate failed: this kernel has neither netem nor tbf, or $rate is not a rate. Try 100mbit."
}
hosts=
for ((node = 1; node <= nodes; ++node)); do
  name=$TRIREME_NODES-$node
  ip netns add "$name" && connect "$node" || refuse 4 "Making the network of node $node failed; see above."
  limit "$name" eth0 "$delay"
  limit "$TRIREME_NODES-switch" "port$node"
  hosts+=${hosts:+,}10.77.0.$node:$ranks
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec "$TRIREME_NODES-1" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$TRIREME_NODES-1" \
  "${MPIRUN:-mpirun}" -np $((nodes * ranks)) --host "$hosts" --map-by slot --bind-to none \
  --mca plm_rsh_agent "$here/namespaces.sh --agent" --mca oob_tcp_if_include 10.77.0.0/24 \
  --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca pml ob1 --mca mpi_yield_when_idle 1 "$@" &
wait $!
