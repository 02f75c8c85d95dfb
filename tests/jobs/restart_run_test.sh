#!/bin/bash
# A rank of a run is killed: the batch file starts the ranks again, without SLURM, and the losses are those of an undisturbed run.
# A batch file that is interrupted leaves no ranks behind.
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd) || exit 1
source "$(dirname "$0")/../e2e/functions.sh"

make_corpus corpus 1
run=("${run[@]/#8/200}" --hidden-dropout 0.1)
done_by 2 train "${run[@]}" --metrics-file undisturbed.jsonl

: >model.ini
TRIREME=$trireme RANKS=2 timeout -k 5 60 bash "$jobs/one_node.sbatch" model.ini killed "${run[@]}" --save-interval 20 >out 2>err &
job=$!
until [ "$(cat killed/metrics.jsonl 2>/dev/null | wc -l)" -ge 50 ] || ! kill -0 $job 2>/dev/null; do sleep 0.01; done
ranks() { # prints the processes of the ranks
  local process
  for process in $(pgrep -f "^$trireme train "); do
    [ "$(readlink "/proc/$process/cwd")" != "$scratch" ] || echo "$process"
  done
}
for process in $(ranks); do
  if grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$process/environ"; then kill -9 "$process"; fi
done
wait $job
code=$?
check "the run ends" [ $code = 0 ]
check "after a second start of the ranks" [ "$(sed -n 's/.* returned //p' killed/lives | paste -sd ' ')" = "137 0" ]
check "with the losses of an undisturbed run" cmp <(field lm_loss undisturbed.jsonl) <(field lm_loss killed/metrics.jsonl)
check "and says how long it took" grep -q 'iteration [0-9]* was done [0-9.]* s after the last record of the previous attempt' err

for signal in INT TERM; do
  TRIREME=$trireme RANKS=2 env --default-signal=INT bash "$jobs/one_node.sbatch" model.ini $signal "${run[@]/#200/1000000}" >out 2>err &
  job=$!
  until [ -s $signal/metrics.jsonl ] || ! kill -0 $job 2>/dev/null; do sleep 0.01; done
  kill -$signal $job
  wait $job
  code=$?
  check "SIG$signal ends the batch file with a checkpoint" [ "$code $(ls $signal/checkpoints | grep -c step-)" = "75 1" ]
  check "and its ranks" [ -z "$(ranks)" ]
done
