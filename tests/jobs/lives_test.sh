#!/bin/bash
# The rules of jobs/lives.sh for returns to the queue, with stand-ins for SLURM and for the program: restart_test.sh has those for
# restarts inside a job, and tests/slurm.sh tries the real ones.
set -uo pipefail
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
requeue_mark=$folder/requeued
failed=0
fail() { echo "$*"; cat "$folder/output"; failed=1; }

# The program: "trains" to step 9 in steps of 0.1 s; at SIGUSR1 it commits the step reached and returns 75.
cat >"$folder/trireme" <<'P'
#!/bin/bash
shift
while [ $# -gt 0 ]; do
  case $1 in
    --save) save=$2 ;;
    --return) result=$2 ;;
  esac
  shift
done
step=$(cat "$save/LATEST" 2>/dev/null || echo 0)
commit() { mkdir -p "$save/step-0000000$step" && echo $step >"$save/LATEST"; }
trap 'commit; exit 75' USR1
[ -n "${result:-}" ] && exit "$result"
mkdir -p "$save" && echo >"$save/started"
while [ $step -lt 9 ]; do sleep 0.1; step=$((step + 1)); done
commit
P
chmod +x "$folder/trireme"

# attempt RUN OPTION...: one attempt of a job, as the batch files run it; sets `status`. SIGNAL_AFTER: seconds from the
# program's start to SLURM's early signal.
attempt() {
  rm -f "$requeue_mark"
  (
    scontrol() { [ "$1 $2" = "requeue 7" ] && touch "$requeue_mark"; }
    SLURM_JOB_ID=7 TRIREME=$folder/trireme LAUNCH=()
    source "$jobs/lives.sh"
    run_life "$@"
  ) >"$folder/output" 2>&1 &
  local job=$!
  if [ -n "${SIGNAL_AFTER:-}" ]; then
    until [ -s "$1/checkpoints/started" ]; do sleep 0.05; done
    sleep "$SIGNAL_AFTER"
    kill -USR1 $job
  fi
  wait $job
  status=$?
}
expect() {  # STATUS REQUEUED(yes or no) WHAT
  local requeued=no
  [ -e "$requeue_mark" ] && requeued=yes
  [ "$status $requeued" = "$1 $2" ] || fail "$3: returned $status, requeued: $requeued; expected $1, $2"
}

for missing in "" --data-path; do
  attempt "$missing" corpus.h5
  expect 2 no "no folder, but '$missing'"
done
attempt "$folder/a"
expect 0 no "a run that ends"

SIGNAL_AFTER=0.5 attempt "$folder/b"
expect 0 yes "a run that is signalled"
grep -q "returned 75 at step [1-8]" "$folder/output" || fail "it should have saved where it was"
attempt "$folder/b"
expect 0 no "its second attempt"
[ -d "$folder/b/checkpoints/step-00000009" ] || fail "the second attempt should have ended the run"

ends=$(sed -nE 's/.* job 7 step [1-9] (returned [0-9]+)$/\1/p' "$folder/b/lives" | tr '\n' ' ')
[ "$ends" = "returned 75 returned 0 " ] || fail "the list of attempts should have both ends: $(cat "$folder/b/lives")"

attempt "$folder/c" --return 75
expect 0 yes "the first attempt without progress"
attempt "$folder/c" --return 75
expect 1 no "the second attempt without progress"
grep -q "have not come beyond step 0" "$folder/output" || fail "it should say why the chain ends"
attempt "$folder/c"
expect 1 no "a third, queued by hand"
rm "$folder/c/lives"
attempt "$folder/c"
expect 0 no "a third, after mending and removing the list of attempts"

attempt "$folder/d" --return 3
expect 3 no "a damaged checkpoint"

# An attempt that was killed without a word (a failed node) counts as well.
mkdir "$folder/f"
printf '%s\n' "then job 7 step 0" "then job 7 step 0" >"$folder/f/lives"
attempt "$folder/f"
expect 1 no "two attempts that were killed before the first checkpoint"
exit $failed
