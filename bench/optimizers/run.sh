#!/bin/bash
# Trains a small GPT-2 with AdamW, with AdamW's moments in bf16, and with Muon, each at its best of three learning rates.
# Prints a table of their validation losses.
# usage: bench/optimizers/run.sh TRIREME [TEXT_FILE...]
#
# The text is that of prose_corpus in bench/common.sh. Each learning rate is tried with one seed; the best one is run with three.
# ITERATIONS (300) sets the length. One core.
set -euo pipefail
source "$(dirname "$0")/../common.sh"
trireme=$(realpath "$1")
shift
iterations=${ITERATIONS:-300}
prose_corpus "$trireme" "$@"

declare -A options=(
  [adam]="--optimizer adam"
  [adam-bf16]="--optimizer adam --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
  [muon]="--optimizer muon"
)
# final OPTIMIZER RATE SEED: the validation loss at the end of a run.
final() {
  # shellcheck disable=SC2086  # words of the optimizer
  final_loss "$trireme" "$1-$2-$3" --lr "$2" --seed "$3" ${options[$1]}
}

echo "$iterations iterations of 16 x 64 bytes; 4 layers, hidden 128; cosine to 0, 10 % warm-up"
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
