#!/bin/bash
# Times entire training steps on this machine's CPU: GPT-2 of 4 layers x 256 (batch 8) and 124M (batch 4), sequences of 256
# tokens, vocabulary 50257, no dropout, in fp32 and bf16; as one rank with THREADS threads and, where THREADS is even, as
# two tensor ranks with half of them each. Prints one line a run, separated by tabs:
#   model, type, layout, median tokens/s, least, greatest (without the first step),
#   share: the step's model FLOPs a second (attention counted in full) over the greatest speed of products measured here:
#     of the libraries, of linear layers and of these steps;
#   where PYTHON has PyTorch, its median for the same model and type, and the ratio of this program's median to it.
# Runs of this program and of PyTorch alternate, so that both see the same load.
#
# usage: bench/step/run.sh [BUILD_FOLDER]        default build/release
# environment: THREADS (default 2), STEPS (6), MODELS ("4x256 124m"), DTYPES ("fp32 bf16"), PYTHON (python3)
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${1:-}" trireme kernels_bench
threads=${THREADS:-2} steps=${STEPS:-6} python=${PYTHON:-python3}
have_torch=no
"$python" -c 'import torch' 2>/dev/null && have_torch=yes

# The same tokens for both.
bash "$root/bench/step/gpu.sh" --tokens $((8 * 256 * steps + 1)) 50257 > "$work/tokens.bin"
"$build/trireme" corpus import "$work/tokens.bin" --tokenizer null --vocab-size 50257 --output "$work/corpus.h5" 2> "$work/log"

rounded_summary() { summary | awk '{ printf "%.0f %.0f %.0f", $1, $2, $3 }'; }

# Greatest GFLOP/s of products in a type, on all threads at once
ceiling() {
  TRIREME_THREADS=$threads "$build"/kernels_bench --benchmark_format=json --benchmark_min_time=0.05 \
    --benchmark_filter="^$1/h768/(fc|qkv)/(forward|backward)" 2> "$work/log" |
    awk -F'[:,]' '/"ceiling"/ && $2 > most { most = $2 } END { print most }'
}

# train TYPE LAYOUT MODEL_OPTION...: median, least, greatest tokens/s and the median's FLOP/s a rank times ranks, in GFLOP/s
train() {
  local type=$1 layout=$2 ranks=1 launch=()
  shift 2
  if [ "$layout" = tp2 ]; then
    ranks=2 launch=(mpirun --bind-to none --oversubscribe -n 2)
  fi
  rm -f "$work/metrics.json"
  TRIREME_THREADS=$((threads / ranks)) "${launch[@]}" "$build/trireme" train --tp "$ranks" "$@" --dtype "$type" \
    --vocab-size 50257 --seq-length 256 --max-position-embeddings 1024 --hidden-dropout 0 --attention-dropout 0 \
    --lr 1e-4 --train-iters "$steps" --eval-iters 0 --backend cpu --sampling sequential --data-path "$work/corpus.h5" \
    --metrics-file "$work/metrics.json" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  field() { sed -n "2,\$s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$work/metrics.json"; }
  echo "$(field tokens_per_second | rounded_summary) $(field tflops_per_rank | awk -v r="$ranks" '{ print 1e6 * r * $1 }' | rounded_summary)"
}

printf 'model\ttype\tlayout\ttokens/s\tleast\tgreatest\tshare\tPyTorch\tratio\n'
for model in ${MODELS:-4x256 124m}; do
  case $model in
    4x256) options=(--num-layers 4 --hidden-size 256 --num-attention-heads 4 --micro-batch-size 8) peer=(--layers 4 --hidden 256 --heads 4 --batch 8) ;;
    124m) options=(--model gpt2-124m --micro-batch-size 4) peer=(--layers 12 --hidden 768 --heads 12 --batch 4) ;;
    *) echo "unknown model $model: 4x256 or 124m" >&2; exit 2 ;;
  esac
  for type in ${DTYPES:-fp32 bf16}; do
    top=$(ceiling "$type")
    peer_median=-
    if [ $have_torch = yes ]; then
      read -r peer_median _ < <("$python" "$root/bench/peers/gpt2_pytorch.py" "${peer[@]}" --sequence 256 --dtype "$type" \
        --threads "$threads" --steps "$steps" --tokens "$work/tokens.bin" | rounded_summary; echo)
    fi
    layouts=threads
    [ $((threads % 2)) = 0 ] && layouts='threads tp2'
    for layout in $layouts; do
      read -r median least greatest mflops _ < <(train "$type" "$layout" "${options[@]}")
      top=$(awk -v top="$top" -v own="$mflops" 'BEGIN { own /= 1000; print (own > top ? own : top) }')
      awk -v OFS='\t' -v model="$model" -v type="$type" -v layout="$layout" -v median="$median" -v least="$least" \
        -v greatest="$greatest" -v mflops="$mflops" -v top="$top" -v peer="$peer_median" 'BEGIN {
          print model, type, layout, median, least, greatest, sprintf("%.2f", mflops / 1000 / top), peer,
                peer == "-" ? "-" : sprintf("%.2f", median / peer) }'
    done
  done
done
