#!/bin/bash
# Trains a small GPT-2 with AdamW, with AdamW's moments in bf16, and with Muon, each at its best of three learning rates.
# Prints a table of their validation losses.
# usage: bench/optimizers/run.sh TRIREME [TEXT_FILE...]
#
# The text is that of the files, else of $TRIREME_TEST_DATA/prose, else what jobs/quickstart.sh trains on: the King
# James Bible, by the program bible. Each learning rate is tried with one seed; the best one is run with three. ITERATIONS (300)
# sets the length. One core.
set -euo pipefail
trireme=$(realpath "$1")
shift
iterations=${ITERATIONS:-300}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if [ $# -gt 0 ]; then
  cat "$@" >"$scratch/text.txt"
elif [ -d "${TRIREME_TEST_DATA:-/nonexistent}/prose" ]; then
  find "$TRIREME_TEST_DATA/prose" -type f -name '*.txt' -print0 | sort -z | xargs -0 cat >"$scratch/text.txt"
else
  bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >"$scratch/text.txt"
fi
head -c 4000000 "$scratch/text.txt" | iconv -c -f UTF-8 -t UTF-8 >"$scratch/cut.txt" || true
"$trireme" corpus build --input "$scratch/cut.txt" --output "$scratch/text.h5" --tokenizer bytes >"$scratch/log" 2>&1

declare -A options=(
  [adam]="--optimizer adam"
  [adam-bf16]="--optimizer adam --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
  [muon]="--optimizer muon"
)
# final OPTIMIZER RATE SEED: the validation loss at the end of a run.
final() {
  local metrics="$scratch/$1-$2-$3.jsonl"
  # shellcheck disable=SC2086  # words of the optimizer
  taskset -c 0 "$trireme" train --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 \
    --data-path "$scratch/text.h5" --split 95,5,0 --backend cpu --hidden-dropout 0 --attention-dropout 0 \
    --micro-batch-size 16 --global-batch-size 16 --train-iters "$iterations" --lr "$2" --min-lr 0 --lr-decay-style cosine \
    --lr-warmup-fraction 0.1 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1 ${options[$1]} --seed "$3" \
    --eval-interval "$iterations" --eval-iters 20 --metrics-file "$metrics" >"$scratch/log" 2>&1 ||
    { tail -5 "$scratch/log" >&2; return 1; }
  sed -n 's/.*"valid_loss": *\([0-9.]*\).*/\1/p' "$metrics" | tail -1
}

echo "text: $(wc -c <"$scratch/cut.txt") bytes; $iterations iterations of 16 x 64 bytes; 4 layers, hidden 128; cosine to 0, 10 % warm-up"
echo
echo "| optimizer | learning rate | validation loss, seed 1 |"
echo "| --- | ---: | ---: |"
declare -A best first
for optimizer in adam adam-bf16 muon; do
  least=
  for rate in 0.001 0.003 0.01; do
    loss=$(final $optimizer "$rate" 1)
    echo "| $optimizer | $rate | $loss |"
    if [ -z "$least" ] || awk "BEGIN { exit !($loss < $least) }"; then
      least=$loss
      best[$optimizer]=$rate
      first[$optimizer]=$loss
    fi
  done
done
echo
echo "| optimizer | best rate | seed 1 | seed 2 | seed 3 | mean |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
for optimizer in adam adam-bf16 muon; do
  line="" sum=0
  for seed in 1 2 3; do
    loss=${first[$optimizer]}
    [ $seed = 1 ] || loss=$(final $optimizer "${best[$optimizer]}" $seed)
    line+=" $loss |"
    sum=$(awk "BEGIN { print $sum + $loss }")
  done
  echo "| $optimizer | ${best[$optimizer]} |$line $(awk "BEGIN { printf \"%.4f\", $sum / 3 }") |"
done
