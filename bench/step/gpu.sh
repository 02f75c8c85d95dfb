#!/bin/bash
# Times whole training steps on one GPU, ours and PyTorch's (compiled, its fused attention and optimizer) in the same run:
# GPT-2 1.2B at micro-batch 8, an update after one micro-batch and after 16, and 124M at micro-batch 64; s 1024, bf16,
# dropout 0.1. Prints one line a run: median tokens/s (least to greatest, the first steps left out), model TFLOP/s with
# attention counted in full, MFU against PEAK, and beside PyTorch's our median over its.
#
# usage: bench/step/gpu.sh [FOLDER]      the programs of FOLDER: a build folder, or what tests/gpu.sh --pack made; by default
#                                        the folder that this script was packed into, or build/release
#        bench/step/gpu.sh --dry-run [FOLDER]     a tiny model on the CPU: whether this script works
# environment: MODELS ("gpt2-1.2b gpt2-1.2b:16 gpt2-124m", each NAME or NAME:MICRO_BATCHES), STEPS (20), PEAK (989 TFLOP/s, what
#   H100 and H200 have in dense bf16), PYTHON (python3; without PyTorch its lines are left out)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dry_run=no
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
if [ -x "$root/trireme" ]; then folder=$root; else folder=$root/build/release; fi
folder=$(cd "${1:-$folder}" && pwd)
[ -x "$folder/trireme" ] || { echo "$folder/trireme is missing: cmake --build --preset release" >&2; exit 2; }
if [ -d "$root/tests" ]; then source "$root/tests/gpu_environment.sh"; else source "$root/gpu_environment.sh"; fi
peak=${PEAK:-989} python=${PYTHON:-python3} steps=${STEPS:-20}
models=${MODELS:-gpt2-1.2b gpt2-1.2b:16 gpt2-124m}
backend=cuda device=cuda warm_up=5 sequence=1024 vocabulary=51200
if [ $dry_run = yes ]; then
  models=${MODELS:-tiny tiny:2} backend=cpu device=cpu warm_up=1 steps=${STEPS:-3} sequence=32 vocabulary=512
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ids as in text, the larger the rarer, in llm.c's format: the gradient of an embedding takes its time by them.
"$python" - "$vocabulary" >"$work/tokens.bin" <<'PYTHON'
import array, random, sys
size, count = int(sys.argv[1]), 1 << 20
random.seed(1)
sys.stdout.buffer.write(array.array("i", [20240520, 1, count] + [0] * 253).tobytes())
sys.stdout.buffer.write(array.array("H", (int(size ** random.random()) - 1 for _ in range(count))).tobytes())
PYTHON
"$folder/trireme" corpus import "$work/tokens.bin" --output "$work/corpus.h5" --tokenizer null --vocab-size $vocabulary 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }

# median, least and greatest of a column of numbers
summary() {
  sort -g | awk '{ x[NR] = $1 } END { if (NR) printf "%.6g %.6g %.6g\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'
}
line() { printf '%-12s %13s  %-14s %10s  %-23s %8s %6s %6s\n' "$@"; }

[ $dry_run = yes ] || nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || echo "no nvidia-smi"
line model micro-batches program tokens/s "(least to greatest)" TFLOP/s MFU ratio
for entry in $models; do
  model=${entry%:*} micro_batches=1
  [ "$model" = "$entry" ] || micro_batches=${entry#*:}
  case $model in
    gpt2-1.2b) batch=8 options=(--model gpt2-1.2b) peer=(--layers 40 --hidden 1536 --heads 16) ;;
    gpt2-355m) batch=32 options=(--model gpt2-355m) peer=(--layers 24 --hidden 1024 --heads 16) ;;
    gpt2-124m) batch=64 options=(--model gpt2-124m) peer=(--layers 12 --hidden 768 --heads 12) ;;
    tiny) batch=2 options=(--num-layers 2 --hidden-size 64 --num-attention-heads 1) peer=(--layers 2 --hidden 64 --heads 1) ;;
    *) echo "unknown model $model: gpt2-1.2b, gpt2-355m or gpt2-124m" >&2; exit 2 ;;
  esac
  "$folder/trireme" train "${options[@]}" --backend $backend --bf16 --vocab-size $vocabulary --seq-length $sequence \
    --micro-batch-size $batch --global-batch-size $((batch * micro_batches)) --hidden-dropout 0.1 --attention-dropout 0.1 \
    --lr 1e-4 --train-iters "$steps" --eval-iters 0 --split 1,0,0 --data-path "$work/corpus.h5" \
    --metrics-file "$work/$entry.jsonl" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  field() { sed -n "$((warm_up + 1)),\$s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$work/$entry.jsonl" | summary; }
  read -r ours least greatest < <(field tokens_per_second)
  read -r tflops _ < <(field tflops_per_rank)
  calculate() { awk "BEGIN { printf \"%$1\", $2 }"; }
  line "$model" "$micro_batches" trireme "$(calculate .0f "$ours")" "($(calculate .0f "$least") to $(calculate .0f "$greatest"))" \
    "$(calculate .1f "$tflops")" "$(calculate .3f "$tflops / $peak")" ""
  if LD_LIBRARY_PATH=$outside_libraries "$python" -c 'import torch' 2>/dev/null; then
    peer_runs() {
      LD_LIBRARY_PATH=$outside_libraries "$python" "$root/bench/peers/gpt2_pytorch.py" "${peer[@]}" --sequence $sequence \
        --positions $sequence --batch $batch --micro-batches "$micro_batches" --vocabulary $vocabulary --dropout 0.1 \
        --dtype bf16 --device $device --steps "$steps" --warm-up $warm_up "$@" >"$work/peer" 2>"$work/log"
    }
    name=PyTorch
    if [ $dry_run = yes ] || ! peer_runs --compile; then # compiling wants a C compiler and Python's headers
      name="PyTorch, eager"
      peer_runs || { cat "$work/log" >&2; exit 1; }
    fi
    read -r theirs their_least their_greatest < <(summary <"$work/peer")
    # FLOPs a token are the model's: PyTorch's rate is ours times the ratio of tokens.
    line "" "" "$name" "$(calculate .0f "$theirs")" "($(calculate .0f "$their_least") to $(calculate .0f "$their_greatest"))" \
      "$(calculate .1f "$tflops * $theirs / $ours")" "$(calculate .3f "$tflops * $theirs / $ours / $peak")" \
      "$(calculate .2f "$ours / $theirs")"
  fi
done
