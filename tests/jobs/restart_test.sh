#!/bin/bash
# Restarts inside a job (jobs/lives.sh), with stand-ins for SLURM, mpirun and the program: tests/slurm.sh tries the real ones.
set -uo pipefail
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd)
FOLDER=$(mktemp -d) || exit 1
trap 'rm -rf "$FOLDER"' EXIT
mkdir "$FOLDER/bin"
export FOLDER PATH=$FOLDER/bin:$PATH TRIREME=$FOLDER/bin/trireme CUDA_VISIBLE_DEVICES=
unset SLURM_JOB_ID
failed=0
fail() { echo "$*"; cat "$FOLDER/output"; failed=1; }

# SLURM: the job has the nodes of the file nodes, whose states are in the file states, and those in the file silent start nothing.
cat >"$FOLDER/bin/scontrol" <<'END'
#!/bin/bash
echo "$@" >>"$FOLDER/scontrol"
[ "$1 $2" != "show hostnames" ] || tr , '\n' <<<"$3"
[ "$1 $2" != "show job" ] || echo "   ReqNodeList=(null) ExcNodeList=n9"
END
cat >"$FOLDER/bin/squeue" <<'END'
#!/bin/bash
cat "$FOLDER/nodes"
END
cat >"$FOLDER/bin/sinfo" <<'END'
#!/bin/bash
for node in ${4//,/ }; do grep "^$node " "$FOLDER/states" || echo "$node allocated"; done
END
cat >"$FOLDER/bin/srun" <<'END'
#!/bin/bash
nodes=all count=- tasks=- shares=
while [[ $1 == --* ]]; do
  case $1 in --overlap) shares=1 ;; --nodelist=*) nodes=${1#*=} ;; --nodes=*) count=${1#*=} ;; --ntasks=*) tasks=${1#*=} ;; esac
  shift
done
# SLURM has not ended the attempt before on a lost node.
[ $nodes = all ] || [ $shares ] || { echo "Requested nodes are busy" >&2; exit 1; }
if [ "$1" = true ]; then ! tr , '\n' <<<"$nodes" | grep -qxF -f "$FOLDER/silent"; exit; fi
export RAN="$nodes $count $tasks"
exec "$@"
END
cat >"$FOLDER/bin/mpirun" <<'END'
#!/bin/bash
export RAN="$1 $2"
exec "${@:3}"
END
# The program: each start runs a line of the file attempts; a dry run accepts the number of nodes in the file accepted.
cat >"$FOLDER/bin/trireme" <<'END'
#!/bin/bash
save=$(sed 's/.*--save \([^ ]*\).*/\1/' <<<"$*")
commit() { mkdir -p "$save/step-0000000$1"; }
name() { printf '%s\n' "$@" >>"$TRIREME_FAULTY_NODES"; }
begin() { mkdir -p "$save" && echo "0a1b2c3d:0 4e5f6a7b:$1" >"$save/.branch"; }  # from a local checkpoint
if [[ $* == *--dry-run ]]; then
  echo "dry $RAN" >>"$FOLDER/ran"
  [[ $RAN == *" $(cat "$FOLDER/accepted") "* ]] && exit 0
  echo "error: the batch does not divide" >&2
  exit 2
fi
echo "$RAN restart ${TRIREME_RESTART:-0}" >>"$FOLDER/ran"
line=$(head -n 1 "$FOLDER/attempts")
sed -i 1d "$FOLDER/attempts"
eval "$line"
END
chmod +x "$FOLDER"/bin/*

# started COMMAND...: runs it as a batch file, and sets `status`, and `ran` to the starts of the program. SIGNAL_AT: SLURM's early
# signal comes once this file is there.
started() {
  rm -f "$FOLDER/ran" "$FOLDER/scontrol" "$FOLDER/asked"
  "$@" >"$FOLDER/output" 2>&1 &
  local job=$!
  if [ -n "${SIGNAL_AT:-}" ]; then
    until [ -s "$FOLDER/$SIGNAL_AT" ]; do sleep 0.05; done
    kill -USR1 $job
  fi
  wait $job
  status=$?
  ran=$(cat "$FOLDER/ran" 2>/dev/null | paste -sd ';')
}
batch_file() {  # in a process of its own
  export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=${NODES:-n1,n2,n3,n4} SLURM_NTASKS=8 SLURM_JOB_NUM_NODES=4 TRIREME_SPARE_NODES=${SPARES:-0}
  source "$jobs/environment.sh"
  source "$jobs/lives.sh"
  run_life "$1"
}
# job RUN ATTEMPT...: a job of four nodes with two ranks each. Variables: NODES (their names), SPARES, STATE (a node and its state),
# SILENT (a node), ACCEPTED (nodes).
job() {
  echo "${NODES:-n1,n2,n3,n4}" >"$FOLDER/nodes"
  echo "${STATE:-}" >"$FOLDER/states"
  echo "${SILENT:-none}" >"$FOLDER/silent"
  echo "${ACCEPTED:-none}" >"$FOLDER/accepted"
  printf '%s\n' "${@:2}" >"$FOLDER/attempts"
  started batch_file "$FOLDER/$1"
}
# expect WHAT STATUS REQUEUED(yes or no) RAN
expect() {
  local requeued=no
  grep -qs '^requeue 7' "$FOLDER/scontrol" && requeued=yes
  [ "$status $requeued $ran" = "$2 $3 $4" ] || fail "$1: returned $status, requeued: $requeued, started: $ran; expected $2, $3, $4"
}

job a 'commit 1; exit 139' 'commit 2; exit 6' 'commit 9'
expect "ranks that die on healthy nodes" 0 no "all - - restart 0;all - - restart 1;all - - restart 2"
[ "$(grep -c 'job 7 step [0-9] returned' "$FOLDER/a/lives") $(grep -c 'job 7 step [0-9]$' "$FOLDER/a/lives")" = "3 3" ] ||
  fail "each start should be an attempt in the list: $(cat "$FOLDER/a/lives")"
job b 'exit 6' 'exit 137' 'commit 9'
expect "two starts without progress" 1 no "all - - restart 0;all - - restart 1"
job b1 'commit 1; begin 0; exit 6' 'begin 12; exit 6' 'begin 13; exit 6' 'commit 9'
expect "starts that go on from local checkpoints" 0 no "all - - restart 0;all - - restart 1;all - - restart 2;all - - restart 3"
job b2 'commit 1; begin 0; exit 6' 'begin 12; exit 6' 'begin 12; exit 6' 'begin 12; exit 6'
expect "starts that begin with one local checkpoint again and again" 1 no "all - - restart 0;all - - restart 1;all - - restart 2;all - - restart 3"

seed() { echo "mkdir -p \$save/seed-$1/step-0000000$2; exit 6"; }
job b3 "$(seed 1 8)" "$(seed 2 2)" "$(seed 2 4)" 'commit 9'
expect "starts of which each brings one of several seeds further" 0 no "all - - restart 0;all - - restart 1;all - - restart 2;all - - restart 3"

SPARES=1 job c 'commit 1; echo n1,n3,n4 >"$FOLDER/nodes"; exit 137' 'commit 9'
expect "a spare for a node that SLURM took from the job" 0 no "n1,n2,n3 3 6 restart 0;n1,n3,n4 3 6 restart 1"
SPARES=1 STATE="n1 draining" job d 'commit 1; exit 137' 'commit 9'
expect "a spare for a node that drains" 0 no "n1,n2,n3 3 6 restart 0;n2,n3,n4 3 6 restart 1"
NODES=down1,drain2,failover3,n4 job d1 'commit 1; exit 137' 'commit 9'
expect "nodes with the names of states" 0 no "all - - restart 0;all - - restart 1"
SPARES=1 SILENT=n3 job e 'commit 1; exit 137' 'commit 9'
expect "a spare for a node that starts nothing" 0 no "n1,n2,n3 3 6 restart 0;n1,n2,n4 3 6 restart 1"
SPARES=2 job f 'commit 1; name n2 n2; exit 9' 'commit 2; name n1; exit 7' 'commit 9'
expect "spares for nodes that ranks name" 0 no "n1,n2 2 4 restart 0;n1,n3 2 4 restart 1;n3,n4 2 4 restart 2"
[ "$(cat "$FOLDER/f/bad_nodes")" = n2 ] || fail "the node with wrong results, and it alone, should be in bad_nodes: $(cat "$FOLDER/f/bad_nodes")"
SPARES=4 job g
expect "spares alone" 2 no ""

ACCEPTED=2 job h 'commit 1; name n4; exit 7' 'commit 9'
expect "fewer nodes without a spare" 0 no "all - - restart 0;dry n1,n2,n3 3 6;dry n1,n2 2 4;n1,n2 2 4 restart 1"
TRIREME_MIN_NODES=3 ACCEPTED=2 job h1 'commit 1; name n4; exit 7' 'commit 9'
expect "fewer nodes than the least number" 0 yes "all - - restart 0;dry n1,n2,n3 3 6"
job i 'commit 1; name n4; exit 9'
expect "fewer nodes, of which no number will do" 0 yes "all - - restart 0;dry n1,n2,n3 3 6;dry n1,n2 2 4"
grep -q "the batch does not divide" "$FOLDER/output" || fail "the log should say why"
grep -q "excnodelist=n9,n4" "$FOLDER/scontrol" || fail "the queue should not give the bad node again: $(cat "$FOLDER/scontrol")"
for attempt in first second; do
  job i
  expect "the $attempt allocation with the bad node, all the same" 0 yes "dry n1,n2,n3 3 6;dry n1,n2 2 4"
  grep -q "excnodelist=n9,n4$" "$FOLDER/scontrol" || fail "the queue should not give the bad node again: $(cat "$FOLDER/scontrol")"
done
job i
expect "the third of them" 1 no ""
mkdir "$FOLDER/i1"
echo n7,n9 >"$FOLDER/i1/bad_nodes"
job i1 'commit 1; exit 75'
expect "a run with known bad nodes" 0 yes "all - - restart 0"
grep -q "excnodelist=n9,n7$" "$FOLDER/scontrol" || fail "the queue should give no known bad node: $(cat "$FOLDER/scontrol")"
job j 'exit 9'
expect "wrong results that are not traced to a node" 9 no "all - - restart 0"

cp -r "$FOLDER/bin" "$FOLDER/answering"
printf '#!/bin/bash\necho "Unable to contact slurm controller" >&2\nexit 1\n' >"$FOLDER/bin/squeue"
job j1 'commit 1; exit 137' 'commit 9'
expect "ranks that die while SLURM does not answer" 0 no "all - - restart 0;all - - restart 1"
sed -i '2i [ "$1" != requeue ] || [ -e "$FOLDER/asked_once" ] || { touch "$FOLDER/asked_once"; exit 1; }' "$FOLDER/bin/scontrol"
job j2 'commit 1; exit 75'
expect "a requeue that SLURM does not answer at first" 0 yes "all - - restart 0"
cp "$FOLDER"/answering/* "$FOLDER/bin"

SIGNAL_AT=ran job k 'commit 1; sleep 1; exit 137' 'commit 9'
expect "ranks that die after the early signal" 0 yes "all - - restart 0"
sed -i '1a echo >"$FOLDER/asked"; sleep 1' "$FOLDER/bin/squeue"
SIGNAL_AT=asked job l 'commit 1; exit 137' 'commit 9'
expect "the early signal during a restart" 0 yes "all - - restart 0"

# A machine without SLURM.
printf '%s\n' 'commit 1; exit 137' 'commit 2; exit 75' >"$FOLDER/attempts"
RANKS=3 started bash "$jobs/one_node.sbatch" model.ini "$FOLDER/m" --data-path x
expect "a machine without SLURM" 75 no "-n 3 restart 0;-n 3 restart 1"
printf '%s\n' 'commit 1; sleep 2 & exec sleep 1000' 'commit 2; exit 75' >"$FOLDER/attempts"
TRIREME_LAUNCHER_WAIT=1 RANKS=3 started bash "$jobs/one_node.sbatch" model.ini "$FOLDER/n" --data-path x
expect "an mpirun that outlives its processes" 75 no "-n 3 restart 0;-n 3 restart 1"
grep -q "mpirun has had no process" "$FOLDER/output" || fail "the log should say that mpirun was ended"
exit $failed
