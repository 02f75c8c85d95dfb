#!/bin/bash
# Local checkpoints of two ranks that stand for two nodes: each has a folder of its own. A run that loses a node, and all of its
# processes, ends with the digits of an undisturbed one.
source "$(dirname "$0")/functions.sh"
nodes_shim=$4

make_corpus corpus 1
here=$PWD
run=("${model[@]}" --data-path "$here/corpus.h5" --global-batch-size 4 --train-iters 500 --lr 0.01 --eval-iters 0 --bf16
  --hidden-dropout 0.1 --use-distributed-optimizer)
local_steps=(--local-checkpoint-interval 3 --local-checkpoint-dir steps)
mkdir node0 node1

# on_nodes COMMAND...: runs a command on a rank of each node, in its folder.
begin_on_nodes() {
  exec "$mpiexec" -n 1 -wdir "$here/node0" env LD_PRELOAD="$nodes_shim" TRIREME_NODE=0 "$@" : \
    -n 1 -wdir "$here/node1" env LD_PRELOAD="$nodes_shim" TRIREME_NODE=1 "$@"
}
on_nodes() {
  (begin_on_nodes timeout -k 5 60 "$@") >out 2>err
  code=$?
}
# train NAME OPTION...: options of a run with this folder, also to load from, spelt otherwise.
train() {
  arguments=("$trireme" train "${run[@]}" --save "$here/$1" --load "$here/./$1/" --load-or-init --metrics-file "$here/$1.jsonl"
    "${local_steps[@]}" "${@:2}")
}
# killed_after ITERATION [TEXT]: the run of `arguments` is killed after this iteration, and after its log holds the text.
killed_after() {
  (begin_on_nodes "${arguments[@]}") >out 2>err &
  local job=$!
  for _ in $(seq 3000); do
    if grep -q " $1/500 " err && grep -q "${2:-}" err || ! kill -0 $job 2>/dev/null; then break; fi
    sleep 0.01
  done
  kill -STOP $job
  # shellcheck disable=SC2046  # one word each
  kill -9 $(pgrep -P $job) $job
  wait $job 2>/dev/null
}
begun() { sed -n 's/.*loading .*: iteration \([0-9]*\)$/\1/p' err; }
newest() { find "$1" -maxdepth 1 -name 'step-*' | sed 's/.*step-0*//' | sort -n | tail -1; }

done_by 2 train "${run[@]}" --save whole --metrics-file whole.jsonl

# Killed before the first shared step, with a damaged file.
train lost --save-interval 250
killed_after 40
check "there is no shared step yet" [ -z "$(find lost -name 'step-*')" ]
check "the log says where local steps are, and that they have copies" grep -q 'local checkpoint 3 in steps: .* with the copies of another' err
check "the log has their cost" grep -qE '\| local checkpoints [0-9.]+ ms' err
file=$(find node1/steps -name rank-00001.h5 | sort | tail -1)
flip "$file" 3000
killed_after 300 "saved step 250 in"
check "a run continues from the newest local step" [ "$(begun)" -ge 36 ]
check "a damaged file is named" grep -q 'rank-00001.h5 is damaged.*another copy is used' err
check "steps of --save-interval are in the shared folder" [ -e lost/step-00000250/manifest.json ]

# The loss of a node, after a shared step.
rm -rf node1/steps
expected=$(find node0/steps/step-* -name rank-00001.h5 | sed 's|.*step-0*\([0-9]*\)/.*|\1|' | sort -n | tail -1)
killed_after 380
check "a run continues from the copies of a node that is lost" [ "$(begun)" = "$expected" ]

# Local steps of a run do not concern another one.
cp -r node0 kept0
cp -r node1 kept1
train other
arguments=("${arguments[@]/#500/5}")
on_nodes "${arguments[@]}"
check "another run starts from scratch" [ $code = 0 -a -z "$(begun)" ]
check "and leaves no local step" [ -z "$(find node0/steps node1/steps -name 'step-*')" ]
rm -rf node0 node1
mv kept0 node0
mv kept1 node1

# Another grid, without a node: one rank with the folder of one node, which has the files of both.
cp -r lost moved
cp lost.jsonl moved.jsonl
train moved --exit-interval 450
(cd node1 && timeout 60 "$trireme" "${arguments[@]:1}") >out 2>err
check "one rank continues from the folder of a node" [ "$(begun)" -ge 375 ]
check "and saves to the shared folder" [ "$(newest moved)" = 450 ]
# The last step of a run is only on a node, as after a fault before its copy was complete.
cp -r lost ended
cp -r node0 node3
last=$(newest node3/steps)
train ended --override-opt-param-scheduler
arguments=("${arguments[@]/#500/$last}")
(cd node3 && timeout 60 "$trireme" "${arguments[@]:1}") >out 2>err
check "the last step of a run is brought to the shared folder" [ "$? $(newest ended)" = "0 $last" ]
check "and is local no more" [ -z "$(newest node3/steps)" ]
arguments=("${arguments[@]/#steps/$here/whole}")
(cd node3 && timeout 60 "$trireme" "${arguments[@]:1}") >out 2>err
check "a folder of other checkpoints is refused" [ "$? $(grep -c 'has checkpoints of --save' err) $(newest whole)" = "2 1 500" ]
# The list of attempts is damaged.
train ended
printf rubbish >ended/.branch
refused 3 "/ended/.branch: 'rubbish' is not an attempt of a run
Without this file the run continues" \
  1 "${arguments[@]:1}" --override-opt-param-scheduler
rm ended/.branch
on 1 "${arguments[@]:1}" --override-opt-param-scheduler --exit-interval 1
check "without it a run continues from the shared folder" [ "$code $(begun)" = "75 $last" ]
# No shared step is intact.
rm -rf moved
cp -r lost moved
cp lost.jsonl moved.jsonl
mkdir node2
cp -r node0/steps node2/steps
for file in moved/step-*/manifest.json; do flip "$file" 100; done
train moved --exit-interval 450
(cd node2 && timeout 60 "$trireme" "${arguments[@]:1}") >out 2>err
check "a local step is loaded though no shared one is intact" [ "$(begun)" -ge 375 -a "$(newest moved)" = 450 ]
check "the damaged ones are named" grep -q 'the checkpoint step-00000250 cannot be used' err
cp -r lost back
rm -rf back/step-*
train back --exit-interval 2
rm -rf node1/steps && cp -r node0/steps node1/steps
on_nodes "${arguments[@]}"
check "a run whose shared steps are moved away leaves local ones behind" [ -z "$(begun)" ]

train lost --save-interval 250
rm -rf node0 node1
mkdir node0 node1
expected=$(newest lost)
on_nodes "${arguments[@]}"
check "without local steps a run continues from the shared one" [ "$code $(begun)" = "0 $expected" ]
check "it ends with the digits of an undisturbed one" cmp <(field lm_loss whole.jsonl) <(field lm_loss lost.jsonl)
check "and with its state" cmp <(tensors whole/step-00000500) <(tensors lost/step-00000500)
check "the cost of a local step is logged" grep -qE '[0-9]+ local checkpoints: training waited [0-9.]+ ms for each' err
check "local steps are gone in the end" [ -z "$(find node0/steps node1/steps -name 'step-*')" ]

# A folder that the nodes share, one that cannot be written, and that of --save.
arguments=("$trireme" train "${run[@]}" --save "$here/shared" --local-checkpoint-interval 3 --local-checkpoint-dir "$here/both")
on_nodes "${arguments[@]}"
check "a folder that nodes share is refused" \
  [ "$code $(grep -c 'Each node of each job needs a --local-checkpoint-dir of its own' err)" = "4 1" ]
echo >file
on 2 train "${run[@]/#500/6}" --save without --save-interval 2 --local-checkpoint-interval 1 --local-checkpoint-dir file/steps
check "a folder that cannot be written is a warning, once" [ "$code $(grep -c 'no more local checkpoints are saved' err)" = "0 1" ]
check "the others are saved" [ "$(find without -name 'step-*' | wc -l)" = 3 ]
refused 2 "without/step-00000006 is one checkpoint, or has the name of one" 1 train "${run[@]}" --save without/step-00000006
refused 2 "new/step-00000006 is one checkpoint, or has the name of one" 1 train "${run[@]}" --save new/step-00000006
refused 2 "--local-checkpoint-interval needs --local-checkpoint-dir and --save" 1 train "${run[@]}" --local-checkpoint-interval 1
refused 2 "--local-checkpoint-dir needs --local-checkpoint-interval" 1 train "${run[@]}" --local-checkpoint-dir steps
refused 2 "--local-checkpoint-dir ./without/ is the folder of --save" \
  1 train "${run[@]}" --save without --local-checkpoint-interval 1 --local-checkpoint-dir ./without/
