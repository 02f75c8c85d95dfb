#!/bin/bash
# Predictions before a cluster is booked: one layout, a search, and what is refused.
jobs=$(realpath "$(dirname "$0")/../../jobs")
source "$(dirname "$0")/functions.sh"

# has EXPRESSION: the JSON in out must satisfy it; not checked where there is no Python.
has() { ! command -v python3 >/dev/null || python3 -c 'import json, sys; d = json.load(open("out")); sys.exit(not ('"$1"'))'; }

search=(--model gpt2-8.3b --cluster dgx-h100 --nodes 64 --global-batch-size 512)
begin=$SECONDS
done_by 1 plan "${search[@]}" --json
check "a search over 512 GPUs takes seconds" [ $((SECONDS - begin)) -le 20 ]
check "a search ranks grids by their step" has \
  'd["ranks"] == 512 and [g["step_ms"] for g in d["grids"]] == sorted(g["step_ms"] for g in d["grids"])'
check "grids fill the cluster and fit into memory" has 'all(
  g["tensor"] * g["pipeline"] * g["context"] * g["data"] == 512 and max(g["memory_bytes"]) <= d["memory_limit_bytes"]
  for g in d["grids"])'
check "a stage's memory is there for the best grid" has 'len(d["grids"][0]["memory_bytes"]) == d["grids"][0]["pipeline"]'
check "the parts of a step add up to it" has 'all(
  abs(sum(v for k, v in g["parts_ms"].items() if k != "exposed") + sum(g["parts_ms"]["exposed"].values()) - g["step_ms"])
  < 1e-6 * g["step_ms"] for g in d["grids"])'
check "every rejected grid has a reason" has 'd["rejected"] and all(r["reason"] for r in d["rejected"])'
done_by 1 plan "${search[@]}" --tp 8 --pp 1 --cp 1 --top 1 --json
check "--top says how many grids are printed" has 'len(d["grids"]) == 1'
experts=(--model mixtral-8x7b --cluster dgx-h100 --nodes 8 --global-batch-size 256 --seq-length 4096)
done_by 1 plan "${experts[@]}" --tp 1 --cp 1 --micro-batch-size 1 --moe-token-dispatcher-type alltoall \
  --expert-load-factor 1.25 --top 3 --json
check "a search divides experts" has 'all(8 % g["expert"] == 0 and g["expert_load_factor"] == 1.25 for g in d["grids"]) and
  any(g["expert"] > 1 for g in d["grids"])'
done_by 1 plan "${experts[@]}" --ep 8 --tp 1 --pp 4 --micro-batch-size 1 --expert-load-factor 2 --top 1
check "the load of experts is printed" grep -q "^expert load factor 2: " out
done_by 1 plan --constants
check "constants have their sources" [ "$(grep -c . out)" -gt 20 ]

one=(--no-search --tp 8 --micro-batch-size 8 --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce)
done_by 1 plan "${search[@]}" "${one[@]}" --json
check "one layout is predicted as given" has 'len(d["grids"]) == 1 and d["layouts"] == 0 and
  (d["grids"][0]["tensor"], d["grids"][0]["data"], d["grids"][0]["zero"], d["grids"][0]["overlap_gather"]) == (8, 64, 1, False)'
done_by 1 plan "${search[@]}" --tp 8 --pp 4 --schedule zero-bubble --batch-file job.sbatch --svg job.svg --trace-file job.json
check "the breakdown names the bubble" grep -q "bubble: waits for other stages  *[0-9.]* ms" out
check "rejected grids are grouped" grep -q "grids: .* (the nearest: tp" out
check "the batch file asks for the nodes" [ "$(grep -cE '^#SBATCH --(nodes=64|ntasks-per-node=8|gpus-per-node=8)$' job.sbatch)" = 3 ]
check "the batch file is a script" bash -n job.sbatch
folder() { grep -o 'scontrol show job.*head -n 1)' "$1"; }
check "it finds the other files as they do, also in an array" \
  [ "$(folder job.sbatch)" = "$(folder "$jobs/several_nodes.sbatch")" ]
check "the schedule is drawn" grep -q "<title>backward input of micro-batch 0, chunk 0: .* ms</title>" job.svg
cp job.json out
check "the trace has the events of a run" has '{e["name"] for e in d["traceEvents"] if e["ph"] == "X"} >= {
  "forward", "backward input", "backward weight", "wait for activation", "reduce gradients", "optimizer", "iteration"}'
check "the trace has a rank of every stage" has 'sorted({e["pid"] for e in d["traceEvents"]}) == [0, 128, 256, 384]'

# The command that is printed trains, and a trace of that run is compared.
make_corpus corpus 1
printf '[cluster]\nbase = dgx-h100\nranks-per-node = 2\n' >two.ini
done_by 1 plan "${model[@]:0:8}" --vocab-size 259 --cluster two.ini --global-batch-size 4 --pp 2 --dtype fp32
command=$(sed -n 's/^trireme train --data-path CORPUS.h5 --train-iters N --lr X //p' out)
# shellcheck disable=SC2086  # its words
done_by 2 train --data-path corpus.h5 --train-iters 3 --lr 0.1 --eval-iters 0 $command --dry-run
# shellcheck disable=SC2086
done_by 2 train --data-path corpus.h5 --train-iters 3 --lr 0.1 --eval-iters 0 $command --trace-file trace.json
# shellcheck disable=SC2086
done_by 1 plan $command --cluster two.ini --no-search --compare trace.json
check "a trace is compared event by event" grep -qE "^forward +1 +[0-9.]+ +[0-9.]+ +[+-]" out
# shellcheck disable=SC2086
done_by 1 plan $command --cluster two.ini --no-search --compare trace.json --json
check "the comparison is part of the JSON" has \
  'any(r["event"] == "forward" and r["rank"] == 1 and r["measured_ms"] > 0 for r in d["comparison"])'
refused 2 "--compare trace.json: the trace has 2 ranks, the job 4" \
  1 plan "${model[@]:0:8}" --cluster two.ini --nodes 2 --global-batch-size 4 --tp 1 --no-search --compare trace.json
refused 3 "corpus.h5 is not a trace of a training run" \
  1 plan "${model[@]:0:8}" --cluster two.ini --global-batch-size 4 --no-search --compare corpus.h5

# Measured costs replace a cluster's: reductions over a link of 1 MB/s take longer than all else.
on_cpu=("${model[@]:0:8}" --vocab-size 259 --cluster cpu --ranks-per-node 2 --global-batch-size 4 --no-search --json)
done_by 1 plan "${on_cpu[@]}"
cp out preset
echo '{"operation": "all_reduce", "ranks": 2, "bytes": 1000000, "time_us": 1000000}' >slow.jsonl
echo '{"kernel": "optimizer", "shape": [64], "work": 64, "us": 1000, "dtype": "fp32", "ranks": 2}' >kernels.jsonl
done_by 1 plan "${on_cpu[@]}" --calibrate slow.jsonl kernels.jsonl
check "calibrations change a prediction" has \
  'd["grids"][0]["step_ms"] > 10 * json.load(open("preset"))["grids"][0]["step_ms"]'
refused 2 "the calibration has kernels in fp32 and none in bf16" 1 plan "${on_cpu[@]}" --bf16 --calibrate kernels.jsonl
echo '{"operation": "all_reduce", "ranks": 2, "bytes": 8, "time_us": 0}' >>slow.jsonl
refused 3 'slow.jsonl:2: "time_us" is 0' 1 plan "${on_cpu[@]}" --calibrate slow.jsonl
refused 5 "missing.jsonl" 1 plan "${on_cpu[@]}" --calibrate missing.jsonl

# memory FILE...: stage and bytes of a rank, as train logs them and as plan prints them.
memory() { sed -n 's/.*memory of a rank of stage \([0-9]*\): \([0-9.]* [A-Za-z]*\).*/\1 \2/p' "$@"; }
layout=("${model[@]:0:8}" --vocab-size 259 --global-batch-size 4 --pp 2 --dtype fp32 --cross-entropy-chunks 3
  --use-precision-aware-optimizer --exp-avg-dtype bf16)
done_by 2 train "${layout[@]}" --data-path corpus.h5 --train-iters 3 --lr 0.1 --eval-iters 0 --dry-run
memory out err >rehearsed
done_by 1 plan "${layout[@]}" --cluster cpu --ranks-per-node 2 --no-search
check "plan and train know the same memory" [ "$(memory out)" = "$(cat rehearsed)" ]

# The command and the batch file, as a shell reads them.
printf 'cluster = cpu\nranks-per-node = 2\nno-search = true\n' >plan.ini
done_by 1 plan --config plan.ini "${layout[@]}" --pipeline-model-parallel-layout 'Et*2|t*2L' --batch-file quoted.sh
check "a layout is one word" [ "$(grep -c -- "--pipeline-model-parallel-layout 'Et\*2|t\*2L'" out quoted.sh)" = "$(printf 'out:1\nquoted.sh:1')" ]
check "the file of plan's own options is not train's" [ "$(cat out quoted.sh | grep -c -- --config)" = 0 ]

# Refused.
refused 2 "there is no cluster dgx-b300: give one of dgx-2h" 1 plan --model gpt2-8.3b --cluster dgx-b300 --global-batch-size 8
refused 2 "--cluster must be given" 1 plan --model gpt2-8.3b --global-batch-size 8
refused 5 "--cluster: cannot open absent.ini" 1 plan --model gpt2-8.3b --cluster absent.ini --global-batch-size 8
printf '[cluster]\nbase = dgx-h100\n[node]\ngbs = fast\n' >bad.ini
refused 2 "bad.ini:4: node.gbs = fast" 1 plan --model gpt2-8.3b --cluster bad.ini --global-batch-size 8
refused 2 "--global-batch-size must be given for a search" 1 plan "${search[@]:0:6}"
refused 2 "--dtype bf16: a V100 has no bf16; use fp16" 1 plan --model gpt2-124m --cluster dgx-2h --global-batch-size 16 --bf16
refused 2 "no grid fits:" 1 plan --model gpt2-8.3b --cluster dgx-2h --nodes 1 --ranks-per-node 1 --global-batch-size 8
check "it says how much memory is missing" grep -q "1 grid: memory, at least .* GiB a rank of 28.3 GiB (tp 1" err
refused 2 "512 ranks do not make a grid of tensor size 8" 1 plan "${search[@]}" --tp 8 --pp 3 --no-search
refused 5 "--batch-file /absent/job: cannot be written" 1 plan "${search[@]}" "${one[@]}" --batch-file /absent/job
