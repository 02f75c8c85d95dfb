#!/bin/bash
# However a job ends: the right exit code, the message once, no rank left behind. A job that does
# not end by itself is killed after a minute (exit code 124): a loaded machine may need 11 s for what takes 5 otherwise.
# usage: endings.sh MPIEXEC PROGRAM
mpiexec=$1
program=$2
failures=0

# check HOW EXIT_CODE MESSAGE TIMES: 4 ranks end as HOW; stderr holds MESSAGE exactly TIMES times (0: not looked for)
check() {
  local output code begin=$SECONDS
  rm -f "$TRIREME_FAULTY_NODES"
  output=$(timeout 60 "$mpiexec" -n 4 "$program" "$1" "$records" 2>&1 >/dev/null)
  code=$?
  local seconds=$((SECONDS - begin)) found=0
  [ -z "$3" ] || found=$(grep -cF -- "$3" <<<"$output")
  if [ $code -ne "$2" ] || { [ -n "$3" ] && [ "$found" -ne "$4" ]; }; then
    echo "FAILED: $1: exit code $code instead of $2, message $found times instead of $4, after $seconds s"
    echo "$output"
    failures=$((failures + 1))
  else
    echo "passed: $1 after $seconds s"
  fi
}

# found HOW PATTERN: the flight records that the last check left have a finding of this form.
found() {
  local output
  output=$("$program" findings "$records")
  if grep -q -- "$2" <<<"$output"; then
    echo "passed: $1: $2"
  else
    echo "FAILED: $1: no finding $2"
    echo "$output"
    failures=$((failures + 1))
  fi
}

# faulty HOW NODE: the last check left this node in the list of faulty ones.
faulty() {
  local nodes
  nodes=$(sort -u "$TRIREME_FAULTY_NODES" 2>/dev/null)
  if [ "$nodes" = "$2" ]; then
    echo "passed: $1: faulty nodes: ${2:-none}"
  else
    echo "FAILED: $1: faulty nodes are ${nodes:-none} instead of ${2:-none}"
    failures=$((failures + 1))
  fi
}

records=$(mktemp -d)
export TRIREME_FAULTY_NODES=$records.faulty_nodes
trap 'rm -rf "$records" "$TRIREME_FAULTY_NODES"' EXIT
check all_right 0 "" 0
check stopped_early 75 "" 0
check all_throw 2 "the heads do not divide" 1
check collectively 5 "rank 1: the disk is full" 1
check one_throws 3 "rank 1 on host $(hostname) failed alone and ends the job: the corpus is torn" 1
check one_throws_foreign 4 "rank 1 on host $(hostname) failed alone and ends the job: something else" 1
check one_throws_while_communicating 3 "rank 1 on host $(hostname) failed alone and ends the job: the corpus is torn" 1
check one_is_killed 137 "" 0
check one_is_stopped 7 "the job hangs: rank 1 on host $(hostname) does not answer" 1
check one_is_stopped 7 "ranks 0, 2, 3: waiting for 1 s in an all-reduce of the group world for rank 1" 1
check one_is_stopped_while_saving 7 "the job hangs: rank 1 on host $(hostname) does not answer" 1
# The node of a silent rank is faulty, but not those of most ranks: then the one that answers may be cut off.
faulty one_is_stopped "$(hostname)"
check most_are_stopped 7 "the job hangs: rank 0 on host $(hostname), rank 2 on host $(hostname), rank 3 on host $(hostname) do not answer" 1
faulty most_are_stopped ""
check one_is_busy 7 "the job hangs: rank 1 on host $(hostname) does not answer" 1
found one_is_busy "only ranks 0, 2, 3 made calls, 1; first missing elsewhere: all-reduce-max of 1 int32"
check one_never_starts 7 "rank 0 on host $(hostname) waited 0.02 minutes for all ranks to reach MPI_Init" 1
check one_goes_another_way 7 "the job hangs: every rank waits" 1
check one_goes_another_way 7 "rank 1: waiting for 1 s in a barrier of the group world for other ranks" 1
found one_goes_another_way "call 1 is not the same: all-reduce-max of 1 int32 on ranks 0, 2, 3 by .*end (tests/mpi/endings.cpp:[0-9]*); barrier on rank 1 by .*end (tests/mpi/endings.cpp:[0-9]*)"
check one_differs 4 "from rank 1 of its group where 928 were expected: the ranks do not call the same operations in the same order, in an all-reduce of the group world" 1
found one_differs "call 1 is not the same: all-reduce of 1000 fp32 on ranks 0, 2, 3 by .*end (tests/mpi/endings.cpp:[0-9]*); all-reduce of 900 fp32 on rank 1 by"

# A launcher that MPI does not know: each task would be alone and take itself for the whole job.
if output=$(PMI_SIZE=4 "$program" all_right 2>&1 >/dev/null); then
  echo "FAILED: a foreign launcher was not noticed"
  failures=$((failures + 1))
elif [ $? -ne 4 ] || ! grep -qF "started as 4 tasks (PMI_SIZE=4)" <<<"$output"; then
  echo "FAILED: a foreign launcher: $output"
  failures=$((failures + 1))
else
  echo "passed: foreign launcher"
fi
exit $((failures > 0))
