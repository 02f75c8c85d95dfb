#!/bin/bash
# Records of a run (metrics, attempts, curves, timeline) beside other jobs, over restarts, and on a disk that is full.
shim=$(realpath "${3:?usage: records_test.sh TRIREME MPIEXEC IO_FAULT_SHIM}")
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
endless=("${model[@]}" --data-path corpus.h5 --train-iters 1000000 --lr 0.01 --eval-iters 0)
curves=events.out.tfevents.

# begin ARGUMENT...: starts a run with these records as the job $job, and returns once it has some.
begin() {
  "$trireme" train "${endless[@]}" --metrics-file m.jsonl --tensorboard-dir curves "$@" >first.out 2>first.err &
  job=$!
  for _ in $(seq 300); do [ -s m.jsonl ] && break; sleep 0.1; done
}
# ended CODE: asks the job to stop; it ends with this code, and has recorded each of its iterations once.
ended() {
  kill -TERM $job
  wait $job
  code=$?
  check "it ends with $1" [ $code -eq "$1" ]
  check "its metrics have every iteration once" every_iteration m.jsonl
  check "so have its curves" \
    [ "$(cat curves/$curves* | grep -ao 'lm loss vs samples' | wc -l)" = "$(wc -l <m.jsonl)" ]
  check "its attempts have its end" [ "$(grep -c '"event":"end"' m.jsonl.lives)" -eq 1 ]
}
# every_iteration FILE: its lines are iterations 1, 2, 3 and so on.
every_iteration() { [ -s "$1" ] && cmp <(field iteration "$1") <(seq "$(wc -l <"$1")"); }
# records FILE...: digest of these files and their names.
records() { find "$@" -type f -exec sha256sum {} + | sort -k 2; }

# A job that is refused leaves the records of the one that runs. That one stands still meanwhile.
begin --save shared
kill -STOP $job
records m.jsonl* curves shared >before
others=("${endless[@]}" --train-iters 1000000)
refused 4 "shared is in use by another job, process $job on host $(hostname)" \
  2 train "${others[@]}" --save shared --metrics-file m.jsonl --tensorboard-dir curves --trace-file t.json
refused 4 "shared is in use by another job" \
  1 train "${others[@]}" --save shared --load shared --metrics-file m.jsonl --tensorboard-dir curves
refused 4 "--metrics-file m.jsonl is in use by another job" 1 train "${others[@]}" --metrics-file m.jsonl
refused 4 "--tensorboard-dir curves/$curves" 2 train "${others[@]}" --save other --tensorboard-dir curves
check "four jobs that are refused change nothing" cmp before <(records m.jsonl* curves shared)
kill -CONT $job
ended 75

# One that cannot save, or cannot open all of its records, leaves those of a run that is done.
records m.jsonl* curves >before
refused 5 "cannot create the folder corpus.h5" \
  2 train "${run[@]}" --save corpus.h5/saved --metrics-file m.jsonl --tensorboard-dir curves
refused 5 "cannot create the folder corpus.h5" 1 train "${run[@]}" --metrics-file m.jsonl --tensorboard-dir corpus.h5/curves
refused 5 "cannot open absent.txt" \
  1 train "${run[@]}" --save saved --metrics-file m.jsonl --tensorboard-dir curves --sample-prompts absent.txt
mkfifo pipe
refused 2 "pipe is there and is not a file" 2 train "${run[@]}" --metrics-file m.jsonl --trace-file pipe
refused 2 "/dev/zero is there and is not a file" 2 train "${run[@]}" --metrics-file /dev/zero
check "jobs that cannot write, or read their prompts, change nothing" cmp before <(records m.jsonl* curves)
mkfifo n.jsonl.lives
refused 2 "n.jsonl.lives is there and is not a file" 1 train "${run[@]}" --metrics-file n.jsonl

# A restart beside a job that is about to end waits for it, and goes on where that has saved.
rm -r m.jsonl* curves
begin --save chain --load chain --load-or-init
kill -STOP $job
{ # once the restart has met it
  for _ in $(seq 300); do grep -q waiting err && break; sleep 0.1; done
  kill -TERM $job
  kill -CONT $job
} &
unset TRIREME_LOCK_WAIT
on 1 train "${endless[@]}" --save chain --load chain --metrics-file m.jsonl --tensorboard-dir curves \
  --exit-duration-in-mins 0.005
export TRIREME_LOCK_WAIT=0
check "a restart waits, and says so once" \
  [ "$code $(grep -c "chain is in use by process $job on host .*: waiting at most 30 s for its end" err)" = "75 1" ]
wait $job
check "the first one saves and ends" [ $? -eq 75 ]
check "the restart begins at the step that was saved meanwhile" \
  grep -q "continuing after iteration $(sed -n 's/.*saved step \([0-9]*\) in.*/\1/p' first.err)," err
check "no line of the metrics is lost" every_iteration m.jsonl
check "no iteration is done twice" [ "$(grep -o '"lost_iterations":[0-9]*' m.jsonl.lives | tail -1)" = '"lost_iterations":0' ]

# An evaluation alone adds to the records of training.
cp m.jsonl.lives before
echo "the ship" >ship.txt
on 1 train "${endless[@]:0:${#endless[@]}-2}" --eval-iters 1 --load chain --skip-train --metrics-file m.jsonl --tensorboard-dir curves \
  --sample-prompts ship.txt
grep lm_loss m.jsonl >trained.jsonl
check "--skip-train keeps the records of training" every_iteration trained.jsonl
check "and adds its own, with samples" [ "$code $(grep -c valid_loss m.jsonl) $(grep -c '"samples"' m.jsonl)" = "0 1 1" ]
check "it does not count as an attempt" cmp before m.jsonl.lives

# A disk that is full under the records: one warning for each option, and training goes on.
mkdir full
faulty() { # faulty ERROR AT TIMES ARGUMENT...: calls that change files in full/ fail, from number AT on
  LD_PRELOAD=$shim TRIREME_FAULT_FOLDER=full/ \
    TRIREME_FAULT=$1 TRIREME_FAULT_AT=$2 TRIREME_FAULT_TIMES=$3 timeout 60 "$trireme" train "${run[@]}" "${@:4}" >out 2>err
  code=$?
}
warnings() { grep -c -e "$1.*No space left on device; the run continues without" err; }
full=(--metrics-file full/m.jsonl --tensorboard-dir full/curves --trace-file full/t.json)
echo "an earlier one" >full/t.json
faulty 28 12 1000000 --save saved --save-interval 4 "${full[@]}"
check "a full disk under the records is a warning for each option" \
  [ "$code $(warnings '--metrics-file full/m.jsonl') $(warnings --tensorboard-dir) $(warnings '--trace-file full/t.json')" = "0 1 1 1" ]
check "and the checkpoints are there" [ "$(ls -d saved/step-* | xargs)" = "saved/step-00000004 saved/step-00000008" ]
check "what was recorded before is complete" every_iteration full/m.jsonl
check "a timeline of an earlier run stays" [ "$(cat full/t.json)" = "an earlier one" ]
rm -r full/*
faulty 28 10 6 --metrics-file full/m.jsonl
check "records go on when there is room again" \
  [ "$code $(warnings '--metrics-file full/m.jsonl') $(field iteration full/m.jsonl | xargs)" = "0 1 1 2 3 4 8" ]
rm -r full/*
faulty 28 100 1000000 --save full/saved --save-interval 1 "${full[@]}"
check "a checkpoint that is not written is an error all the same" [ "$code $(grep -c 'could not be saved\|are free' err)" = "5 1" ]

# Texts of a model in training: the same on every grid, in metrics and curves, and once over two attempts.
printf 'the ship\n\nthe crew rows\n' >prompts.txt
sampled=("${run[@]}" --dtype fp64 --sample-prompts prompts.txt --sample-interval 2 --sample-tokens 12 --sample-temperature 0.9)
done_by 1 train "${sampled[@]}" --metrics-file one.jsonl
samples() { grep '"samples"' "$1"; }
check "samples are taken at their interval" [ "$(field iteration <(samples one.jsonl) | xargs)" = "2 4 6 8" ]
check "each prompt has a text" [ "$(samples one.jsonl | grep -c '"prompt":"the ship","text":".*"},{"prompt":"the crew rows","text":"..*"}]}$')" -eq 4 ]
check "the log shows them" [ "$(grep -c 'sample [12] after [2468]: the \(ship\|crew rows\) \.\.\. ' err)" -eq 8 ]
grid=(--tp 2 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
on 4 train "${sampled[@]}" "${grid[@]}" --metrics-file four.jsonl --save sampled --exit-interval 4 --tensorboard-dir curves
done_by 2 train "${sampled[@]}" --pp 2 --metrics-file four.jsonl --save sampled --load sampled --tensorboard-dir curves
check "they are the same on other grids, once over two attempts" cmp <(samples one.jsonl) <(samples four.jsonl)
check "TensorBoard has them" [ "$(cat curves/$curves* | grep -ao 'sample [12]' | sort | uniq -c | xargs)" = "4 sample 1 4 sample 2" ]
echo "the crew rows eight oars" >long.txt
refused 3 "long.txt:1: the prompt has 24 tokens, but the model has 16 positions" 1 train "${run[@]}" --sample-prompts long.txt
refused 2 "--sample-interval needs --sample-prompts" 1 train "${run[@]}" --sample-interval 2
