#!/bin/bash
# The figure of the 2019 Megatron-LM paper on the arrangement of BERT's residual, in small: BERTs of several depths in both
# arrangements, with everything else equal: the same samples, several seeds. The paper's matrices begin with a deviation of 0.02
# at 2560 channels, a gain of 0.02 sqrt(2560) = 1; 64 channels have that gain at 0.125.
# Prints a table and draws the curves, a panel a depth. Runs that are complete in FOLDER are not repeated.
# usage: bench/papers/bert_residual_arrangement.sh FOLDER TEXT...    UTF-8 texts, empty lines between paragraphs; results in FOLDER
# Environment: TRIREME (the program), DEPTHS ("4 12 24"), SEEDS ("1 2 3"), ITERATIONS (800), RATE (1e-3), STD (0.125)
set -euo pipefail
[ $# -ge 2 ] || { sed -n '6,7s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/../../jobs/environment.sh"
source "$(dirname "$0")/bert_books.sh"
trireme=$TRIREME
folder=$1 depths=${DEPTHS:-4 12 24} seeds=${SEEDS:-1 2 3} iterations=${ITERATIONS:-800} rate=${RATE:-1e-3} std=${STD:-0.125}
shift

[ -s "$folder/books.h5" ] || book_corpus "$folder" 2048 "$@"
arrangements=(rearranged original)
# each_run COMMAND...: COMMAND with the depth, the arrangement, the seed and the file of metrics of every run.
each_run() {
  local depth arrangement seed
  for depth in $depths; do
    for arrangement in "${arrangements[@]}"; do
      for seed in $seeds; do
        "$@" "$depth" "$arrangement" "$seed" "$folder/$depth.$arrangement.$seed.jsonl" || return
      done
    done
  done
}

train_one() {  # DEPTH ARRANGEMENT SEED METRICS
  local option=()
  grep -qs valid_loss "$4" && return
  rm -f "$4"
  [ "$2" = rearranged ] || option=(--apply-residual-connection-post-layernorm)
  # Both arrangements read the same samples: the seed is that of the weights and of the order.
  "$trireme" train --model-type bert --num-layers "$1" --hidden-size 64 --num-attention-heads 2 \
    --ffn-hidden-size 256 --position-embedding-type rope --seq-length 64 --hidden-dropout 0 --attention-dropout 0 \
    --init-method-std "$std" --data-path "$folder/books.h5" --split 19,1,0 --split-by documents --seed "$3" \
    --micro-batch-size 16 --global-batch-size 16 --train-iters "$iterations" --lr "$rate" --lr-decay-style constant \
    --lr-warmup-iters 50 --adam-beta2 0.98 --weight-decay 0.01 --log-interval 100 --eval-interval "$iterations" \
    --eval-iters 50 --metrics-file "$4" "${option[@]}"
}
each_run train_one

entropy=$(unigram_entropy "$folder/books.h5" --seq-length 64)
print_row() {  # DEPTH ARRANGEMENT SEED METRICS
  awk -v row="| $1 | $2 | $3 |" -v end="$(last_value "$4" valid_loss)" -v first=$((iterations - 100)) '
    match($0, /"lm_loss": *[-+.0-9e]+/) && ++n > first { sum += substr($0, RSTART + 11, RLENGTH - 11) }
    END { printf "%s %.3f | %.3f |\n", row, sum / (n - first), end }' "$4"
}
{
  echo "Initial deviation $std, learning rate $rate; unigram entropy of the held-out targets: $entropy nats."
  echo
  echo "| layers | arrangement | seed | loss, mean of the last 100 of $iterations iterations | held-out loss |"
  echo "| ---: | --- | ---: | ---: | ---: |"
  each_run print_row
} | tee "$folder/table.md"

print_curve() {  # DEPTH ARRANGEMENT SEED METRICS
  awk -v line="$1 $2 $3" 'match($0, /"lm_loss": *[-+.0-9e]+/) {
    sum += substr($0, RSTART + 11, RLENGTH - 11)
    if (++n % 25 == 0) { print line, n, sum / 25; sum = 0 }
  }' "$4"
}
each_run print_curve | awk -v iterations="$iterations" -v entropy="$entropy" '
  # Places in the drawing.
  function x(panel, n) { return sprintf("%.1f", 60 + 290 * (panel - 1) + 270 * n / iterations) }
  function y(loss) { return sprintf("%.1f", 40 + 300 * (top - (loss < top ? loss : top)) / (top - bottom)) }
  function text(at_x, at_y, words, more) {
    printf "<text x=\"%s\" y=\"%s\" font-family=\"sans-serif\" font-size=\"12\" %s>%s</text>\n", at_x, at_y, more, words
  }
  !($1 in panel) { panel[$1] = ++panels; depth[panels] = $1 }
  { line = $1 " " $2 " " $3; where[line] = panel[$1]; kind[line] = $2
    count[line]++; step[line, count[line]] = $4; loss[line, count[line]] = $5
    if (lowest == "" || $5 < lowest) lowest = $5 }
  END {
    bottom = int(4 * lowest) / 4; top = int(4 * entropy) / 4 + 1
    width = x(panels, iterations) + 20
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"400\">\n", width
    printf "<rect width=\"%d\" height=\"400\" fill=\"white\"/>\n", width
    for (l = bottom; l <= top; l += 0.25) text(52, y(l) + 4, l, "text-anchor=\"end\"")
    for (p = 1; p <= panels; p++) {
      text((x(p, 0) + x(p, iterations)) / 2, 28, depth[p] " layers", "text-anchor=\"middle\"")
      for (l = bottom; l <= top; l += 0.25) printf "<path d=\"M%s %sH%s\" stroke=\"#ddd\"/>\n", x(p, 0), y(l), x(p, iterations)
      printf "<path d=\"M%s %sH%s\" stroke=\"#888\" stroke-dasharray=\"6 4\"/>\n", x(p, 0), y(entropy), x(p, iterations)
      text(x(p, 0), 358, 0, "text-anchor=\"start\"")
      text(x(p, iterations / 2), 358, iterations / 2, "text-anchor=\"middle\"")
      text(x(p, iterations), 358, iterations, "text-anchor=\"end\"")
    }
    colour["original"] = "#c0392b"; colour["rearranged"] = "#2255aa"
    for (line in where) {
      printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.3\" points=\"", colour[kind[line]]
      for (i = 1; i <= count[line]; i++) printf "%s,%s ", x(where[line], step[line, i]), y(loss[line, i])
      print "\"/>"
    }
    # The legend is in the corner left free by falling losses.
    text(x(1, iterations) - 5, 58, "original arrangement", "text-anchor=\"end\" fill=\"#c0392b\"")
    text(x(1, iterations) - 5, 76, "rearranged", "text-anchor=\"end\" fill=\"#2255aa\"")
    text(x(1, iterations) - 5, 94, "dashed: unigram entropy", "text-anchor=\"end\" fill=\"#666\"")
    text((x(1, 0) + x(panels, iterations)) / 2, 386, "iterations (masked-token loss in nats, means of 25)",
      "text-anchor=\"middle\"")
    print "</svg>"
  }' >"$folder/curves.svg"
echo "Curves: $folder/curves.svg"
