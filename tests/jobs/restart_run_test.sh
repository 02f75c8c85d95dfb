#!/bin/bash
# A rank of a run is killed: the batch file starts the ranks again, without SLURM, and the losses are those of an undisturbed run.
jobs=$(cd "$(dirname "$0")/../../jobs" && pwd) || exit 1
source "$(dirname "$0")/../e2e/functions.sh"

make_corpus corpus 1
run=("${run[@]/#8/200}" --hidden-dropout 0.1)
done_by 2 train "${run[@]}" --metrics-file undisturbed.jsonl

: >model.ini
TRIREME=$trireme RANKS=2 timeout -k 5 60 bash "$jobs/one_node.sbatch" model.ini killed "${run[@]}" --save-interval 20 >out 2>err &
job=$!
until [ "$(cat killed/metrics.jsonl 2>/dev/null | wc -l)" -ge 50 ] || ! kill -0 $job 2>/dev/null; do sleep 0.01; done
for process in $(pgrep -f "^$trireme train "); do
  if grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$process/environ" && [ "$(readlink "/proc/$process/cwd")" = "$scratch" ]; then
    kill -9 "$process"
  fi
done
wait $job
code=$?
check "the run ends" [ $code = 0 ]
check "after a second start of the ranks" [ "$(sed -n 's/.* returned //p' killed/lives | paste -sd ' ')" = "137 0" ]
check "with the losses of an undisturbed run" cmp <(field lm_loss undisturbed.jsonl) <(field lm_loss killed/metrics.jsonl)
check "and says how long it took" grep -q 'iteration [0-9]* was done [0-9.]* s after the last record of the previous attempt' err
