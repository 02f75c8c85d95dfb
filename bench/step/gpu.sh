#!/bin/bash
# Times entire training steps on one GPU, this program's and PyTorch's (compiled, its fastest attention and fused optimizer)
# in the same run and on the same tokens: GPT-2 1.2B at micro-batch 8, an update after one micro-batch and after 16, 355M at micro-batch 32
# and 124M at micro-batch 64; s 1024, bf16, dropout 0.1. Prints one line a run:
#   median tokens/s (least to greatest, the first steps left out);
#   model TFLOP/s and MFU against PEAK with attention counted in full, and MFU with its causal half alone, both without
#   recomputation;
#   with PyTorch's, the ratio of this program's median to PyTorch's.
#
# usage: bench/step/gpu.sh [FOLDER]      the programs of FOLDER: a build folder, or what tests/gpu.sh --pack made; by default
#                                        the folder that this script was packed into, or build/release
#        bench/step/gpu.sh --dry-run [FOLDER]     a tiny model on the CPU: whether this script works
#        bench/step/gpu.sh --tokens COUNT VOCABULARY     the tokens alone, in llm.c's format, to standard output
#        bench/step/gpu.sh --predict [ARGUMENTS]     steps as predicted from counts, without a GPU: step_predict of the
#                                        default folder or of BUILD, with its arguments; --compare FILE adds measured ones
# environment: MODELS ("gpt2-1.2b gpt2-1.2b:16 gpt2-355m gpt2-124m", each NAME or NAME:MICRO_BATCHES), STEPS (20), PEAK (989
#   TFLOP/s, what H100 and H200 have in dense bf16), PYTHON (python3; without PyTorch its lines are left out), GEMM_CACHE
#   (file for --gemm-cache)
# Exit status 1 where a run failed. A run of this program that failed is repeated once with --no-selftest, which also keeps
# the kernels of attention by warp groups off.
set -euo pipefail

# Ids as in text, the larger the rarer: the gradient of an embedding takes its time by them.
tokens() {
  LC_ALL=C awk -v count="$1" -v vocabulary="$2" '
    function number(value, bytes) { for (; bytes > 0; --bytes) { printf "%c", value % 256; value = int(value / 256) } }
    BEGIN {
      number(20240520, 4); number(1, 4); number(count, 4)
      for (i = 3; i < 256; ++i) number(0, 4)
      srand(1)
      for (i = 0; i < count; ++i) { id = int(vocabulary ^ rand()) - 1; printf "%c%c", id % 256, int(id / 256) }
    }'
}
if [ "${1:-}" = --tokens ]; then
  tokens "$2" "$3"
  exit
fi

root=$(cd "$(dirname "$0")/../.." && pwd)
dry_run=no
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
if [ -x "$root/trireme" ]; then folder=$root; else folder=$root/build/release; fi
if [ "${1:-}" = --predict ]; then
  predict=${BUILD:-$folder}/step_predict
  [ -x "$predict" ] || { echo "$predict is missing: cmake --build --preset release" >&2; exit 2; }
  exec "$predict" "${@:2}"
fi
folder=$(cd "${1:-$folder}" && pwd)
[ -x "$folder/trireme" ] || { echo "$folder/trireme is missing: cmake --build --preset release" >&2; exit 2; }
if [ -d "$root/tests" ]; then source "$root/tests/gpu_environment.sh"; else source "$root/gpu_environment.sh"; fi
peak=${PEAK:-989} python=${PYTHON:-python3} steps=${STEPS:-20} status=0
models=${MODELS:-gpt2-1.2b gpt2-1.2b:16 gpt2-355m gpt2-124m}
backend=cuda device=cuda warm_up=5 sequence=1024 vocabulary=51200
if [ $dry_run = yes ]; then
  models=${MODELS:-tiny tiny:2} backend=cpu device=cpu warm_up=1 steps=${STEPS:-3} sequence=32 vocabulary=512
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

peers_python() { LD_LIBRARY_PATH=$TRIREME_OUTSIDE_LIBRARIES "$python" "$@"; }
peer=yes
if ! reason=$(peers_python -c 'import torch' 2>&1); then
  peer=no
  echo "PyTorch is not measured: $python: ${reason##*$'\n'}"
fi
# failed WHAT: reports the failure and continues.
failed() {
  echo "$1 FAILED:"
  tail -n 15 "$work/log"
  status=1
}
# median, least and greatest of a column of numbers
summary() {
  sort -g | awk '{ x[NR] = $1 } END { if (NR) printf "%.6g %.6g %.6g\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'
}
calculate() { awk "BEGIN { printf \"%$1\", $2 }"; }
columns() { printf '%-12s %13s  %-14s %10s  %-23s %14s %9s %11s %6s\n' "$@"; }
# line MODEL MICRO_BATCHES PROGRAM MEDIAN LEAST GREATEST RATIO
line() {
  local full
  full=$(calculate .8g "$flops * $4 / 1e12")
  columns "$1" "$2" "$3" "$(calculate .0f "$4")" "($(calculate .0f "$5") to $(calculate .0f "$6"))" "$(calculate .1f "$full")" \
    "$(calculate .3f "$full / $peak")" "$(calculate .3f "$full * $causal / $peak")" "$7"
}

if [ $dry_run = no ]; then
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || echo "no nvidia-smi"
fi
"$folder/trireme" info 2>&1 | grep -E '^(trireme|CUDA|GPUs) ' || echo "trireme info failed" # with cuBLASLt's version
columns model micro-batches program tokens/s "(least to greatest)" "full TFLOP/s" "full MFU" "causal MFU" ratio
for entry in $models; do
  model=${entry%:*} micro_batches=1
  [ "$model" = "$entry" ] || micro_batches=${entry#*:}
  options=(--model "$model")
  case $model in
    gpt2-1.2b) batch=8 layers=40 hidden=1536 heads=16 ;;
    gpt2-2.5b) batch=8 layers=54 hidden=1920 heads=20 ;;
    gpt2-355m) batch=32 layers=24 hidden=1024 heads=16 ;;
    gpt2-124m) batch=64 layers=12 hidden=768 heads=12 ;;
    tiny) batch=2 layers=2 hidden=64 heads=1 options=(--num-layers 2 --hidden-size 64 --num-attention-heads 1) ;;
    *) echo "unknown model $model: gpt2-2.5b, gpt2-1.2b, gpt2-355m or gpt2-124m" >&2; exit 2 ;;
  esac
  # A token's: 6 (12 L h^2 + 2 L s h + V h) with attention in full; L s h of it only, where just the causal half counts.
  flops=$(calculate .10g "6 * $hidden * (12 * $layers * $hidden + 2 * $layers * $sequence + $vocabulary)")
  causal=$(calculate .10g "1 - 6 * $hidden * $layers * $sequence / $flops")
  tokens $((batch * micro_batches * sequence * steps + 1)) $vocabulary >"$work/tokens.bin"
  import_tokens() {
    rm -f "$work/corpus.h5"
    "$folder/trireme" corpus import "$work/tokens.bin" --output "$work/corpus.h5" --tokenizer null --vocab-size $vocabulary 2>"$work/log"
  }
  train() {
    rm -f "$work/$entry.jsonl"
    "$folder/trireme" train "${options[@]}" --backend $backend --bf16 --vocab-size $vocabulary --seq-length $sequence \
      --max-position-embeddings $sequence --micro-batch-size $batch --global-batch-size $((batch * micro_batches)) --hidden-dropout 0.1 --attention-dropout 0.1 \
      --lr 1e-4 --train-iters "$steps" --eval-iters 0 --sampling sequential --data-path "$work/corpus.h5" --distributed-timeout-minutes 0.5 \
      ${GEMM_CACHE:+--gemm-cache "$GEMM_CACHE"} --metrics-file "$work/$entry.jsonl" "$@" >"$work/log" 2>&1
  }
  ours=
  if ! import_tokens; then
    failed "$entry, import of the tokens"
  elif train || { failed "$entry" && train --no-selftest; }; then
    read -r ours least greatest < <(sed -n "$((warm_up + 1)),\$s/.*\"tokens_per_second\": *\([0-9.e+-]*\).*/\1/p" "$work/$entry.jsonl" | summary)
    line "$model" "$micro_batches" trireme "$ours" "$least" "$greatest" ""
  else
    failed "$entry, --no-selftest"
  fi
  [ $peer = yes ] || continue
  peer_runs() {
    peers_python "$root/bench/peers/gpt2_pytorch.py" --layers $layers --hidden $hidden --heads $heads --sequence $sequence \
      --positions $sequence --batch $batch --micro-batches "$micro_batches" --vocabulary $vocabulary --dropout 0.1 \
      --dtype bf16 --device $device --steps "$steps" --warm-up $warm_up --tokens "$work/tokens.bin" "$@" \
      >"$work/peer" 2>"$work/log"
  }
  name=PyTorch
  if [ $dry_run = yes ] || ! peer_runs --compile; then # compiling requires a C compiler and Python's headers
    name="PyTorch, eager"
    [ $dry_run = yes ] || echo "             PyTorch did not compile the model: $(tail -n 1 "$work/log")"
    peer_runs || { failed "$entry, PyTorch"; continue; }
  fi
  read -r theirs least greatest < <(summary <"$work/peer")
  if [ -n "$ours" ]; then line "" "" "$name" "$theirs" "$least" "$greatest" "$(calculate .2f "$ours / $theirs")"
  else line "$model" "$micro_batches" "$name" "$theirs" "$least" "$greatest" ""; fi
  sed -n 's/^PyTorch /             with PyTorch /p' "$work/log"
done
exit $status
