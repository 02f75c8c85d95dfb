#!/bin/bash
# Forms of pipelines from the command line: what they compute, what is refused, what a trace and a plan show.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
shape=(--num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --data-path corpus.h5 --train-iters 3
  --lr 0.01 --global-batch-size 6 --eval-iters 0 --dtype fp64)

done_by 1 train "${shape[@]}" --metrics-file alone.jsonl --save saved
field lm_loss alone.jsonl >alone
same_loss() {
  local ranks=$1
  shift
  done_by "$ranks" train "${shape[@]}" --metrics-file other.jsonl "$@"
  field lm_loss other.jsonl >other
  check "one rank's losses with $*" close_to other alone 1e-10
}
same_loss 2 --pp 2 --vpp 2
same_loss 2 --pp 2 --num-layers-per-virtual-pipeline-stage 1 --overlap-p2p-communication
same_loss 2 --pp 2 --schedule zero-bubble --trace-file trace.json
same_loss 3 --pp 3 --standalone-embedding-stage
same_loss 3 --pp 3 --pipeline-model-parallel-layout 1,3,0 --schedule gpipe
same_loss 3 --pp 3 --pipeline-model-parallel-layout 'Et|(t|)*1ttL'
same_loss 3 --pp 3 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1
same_loss 4 --pp 2 --tp 2 --no-scatter-gather-tensors-in-pipeline

for rank in 0 1; do
  check "the trace holds the steps of rank $rank" \
    [ "$(grep "\"pid\": $rank," trace.json | grep -c '"name": "backward weight"')" = 18 ]
done
check "the trace holds the updates" [ "$(grep -c '"name": "optimizer"' trace.json)" = 6 ]

# A checkpoint of one rank in other pipelines.
done_by 1 eval --load saved --data-path corpus.h5
field loss out >alone
for layout in "--vpp 2" "--pipeline-model-parallel-layout 0,4"; do
  # shellcheck disable=SC2086  # two words
  done_by 2 eval --load saved --data-path corpus.h5 --pp 2 $layout
  field loss out >other
  check "eval in a pipeline with $layout" close_to other alone 1e-10
done
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 20 --temperature 0
cp out alone
done_by 2 generate --load saved --prompt "the ship" --max-new-tokens 20 --temperature 0 --pp 2 --vpp 2
check "generate in a pipeline of several chunks" cmp out alone

refused 5 "cannot write /absent/trace.json" 2 train "${shape[@]}" --trace-file /absent/trace.json

# Plans.
done_by 1 plan --show-schedule --pp 2 --micro-batches 3 --svg schedule.svg
check "plan prints a schedule" grep -qxF "rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  ." out
check "plan prints the bubble" grep -qF "bubble 33.3 % of the work" out
check "plan draws a schedule" [ "$(grep -c '<title>' schedule.svg)" = 12 ]
done_by 1 plan --show-schedule --pp 4 --vpp 2 --global-batch-size 32 --micro-batch-size 2 --data-parallel-size 2
check "plan takes batch sizes" grep -qxF "interleaved: 4 stages of 2 chunks, 8 micro-batches" out
refused 2 "--micro-batches is for --show-schedule" 1 plan --pp 2 --micro-batches 3
refused 2 "give either --micro-batches, or --global-batch-size" 1 plan --show-schedule --pp 2
refused 2 "(= 2): choose 8 or 10, another micro-batch size or number of ranks" 1 plan --show-schedule --global-batch-size 9 --micro-batch-size 2
refused 5 "--svg /absent/s.svg: cannot be written" 1 plan --show-schedule --micro-batches 2 --svg /absent/s.svg
