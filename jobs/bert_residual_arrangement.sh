#!/bin/bash
# The figure of the 2019 Megatron-LM paper on the arrangement of BERT's residual, in small: BERTs of both arrangements on the
# same samples, several seeds each. The matrices begin larger than usual, as in a deep BERT after much training: each branch
# then weighs as much as the residual, and in the original arrangement (norm after the sum) hides it layer by layer.
# Prints a table and draws the curves. Runs that are complete in FOLDER are not repeated.
# usage: jobs/bert_residual_arrangement.sh FOLDER TEXT...    UTF-8 texts, empty lines between paragraphs; results in FOLDER
# Environment: TRIREME (the program), LAYERS (12), SEEDS ("1 2"), ITERATIONS (1500), RATE (2e-3), STD (0.25)
set -euo pipefail
[ $# -ge 2 ] || { sed -n '6,7s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/bert_books.sh"
trireme=$TRIREME
folder=$1 layers=${LAYERS:-12} seeds=${SEEDS:-1 2} iterations=${ITERATIONS:-1500} rate=${RATE:-2e-3} std=${STD:-0.25}
shift

[ -s "$folder/books.h5" ] || book_corpus "$folder" 2048 "$@"
arrangements=(rearranged original)
for seed in $seeds; do
  for arrangement in "${arrangements[@]}"; do
    metrics=$folder/$arrangement.$seed.jsonl option=()
    grep -qs valid_loss "$metrics" && continue
    rm -f "$metrics"
    [ $arrangement = rearranged ] || option=(--apply-residual-connection-post-layernorm)
    # Both arrangements read the same samples: the seed is that of the weights and of the order.
    "$trireme" train --model-type bert --num-layers "$layers" --hidden-size 64 --num-attention-heads 2 \
      --ffn-hidden-size 256 --position-embedding-type rope --seq-length 64 --hidden-dropout 0 --attention-dropout 0 \
      --init-method-std "$std" --data-path "$folder/books.h5" --split 19,1,0 --split-by documents --seed "$seed" \
      --micro-batch-size 16 --global-batch-size 16 --train-iters "$iterations" --lr "$rate" --lr-decay-style constant \
      --lr-warmup-iters 50 --adam-beta2 0.98 --weight-decay 0.01 --log-interval 100 --eval-interval "$iterations" \
      --eval-iters 50 --metrics-file "$metrics" "${option[@]}"
  done
done

entropy=$(unigram_entropy "$folder/books.h5" --seq-length 64)
{
  echo "$layers layers, initial deviation $std, learning rate $rate; unigram entropy of the held-out targets: $entropy nats."
  echo
  echo "| arrangement | seed | loss, mean of the last 100 of $iterations iterations | held-out loss |"
  echo "| --- | ---: | ---: | ---: |"
  for arrangement in "${arrangements[@]}"; do
    for seed in $seeds; do
      awk -v row="| $arrangement | $seed |" -v end="$(last_value "$folder/$arrangement.$seed.jsonl" valid_loss)" \
        -v first=$((iterations - 100)) '
        match($0, /"lm_loss": *[-+.0-9e]+/) && ++n > first { sum += substr($0, RSTART + 11, RLENGTH - 11) }
        END { printf "%s %.3f | %.3f |\n", row, sum / (n - first), end }' "$folder/$arrangement.$seed.jsonl"
    done
  done
} | tee "$folder/table.md"

for arrangement in "${arrangements[@]}"; do
  for seed in $seeds; do
    awk -v kind=$arrangement 'match($0, /"lm_loss": *[-+.0-9e]+/) {
        sum += substr($0, RSTART + 11, RLENGTH - 11)
        if (++n % 25 == 0) { print kind, seed, n, sum / 25; sum = 0 }
      }' seed="$seed" "$folder/$arrangement.$seed.jsonl"
  done
done | awk -v iterations="$iterations" -v entropy="$entropy" '
  # Places in the drawing.
  function x(n) { return sprintf("%.1f", 60 + 560 * n / iterations) }
  function y(loss) { return sprintf("%.1f", 20 + 320 * (top - (loss < top ? loss : top)) / (top - bottom)) }
  function text(at_x, at_y, words, more) {
    printf "<text x=\"%s\" y=\"%s\" font-family=\"sans-serif\" font-size=\"12\" %s>%s</text>\n", at_x, at_y, more, words
  }
  { line = $1 " " $2; kind[line] = $1; count[line]++; step[line, count[line]] = $3; loss[line, count[line]] = $4
    if (lowest == "" || $4 < lowest) lowest = $4 }
  END {
    bottom = int(4 * lowest) / 4; top = int(4 * entropy) / 4 + 0.75
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"390\">"
    print "<rect width=\"640\" height=\"390\" fill=\"white\"/>"
    for (l = bottom; l <= top; l += 0.25) {
      printf "<path d=\"M60 %sH620\" stroke=\"#ddd\"/>\n", y(l)
      text(52, y(l) + 4, l, "text-anchor=\"end\"")
    }
    for (i = 0; i <= 4; i++) text(x(iterations * i / 4), 358, iterations * i / 4, "text-anchor=\"middle\"")
    text(340, 380, "iterations (masked-token loss in nats, means of 25)", "text-anchor=\"middle\"")
    printf "<path d=\"M60 %sH620\" stroke=\"#888\" stroke-dasharray=\"6 4\"/>\n", y(entropy)
    text(615, y(entropy) - 5, "unigram entropy", "text-anchor=\"end\" fill=\"#666\"")
    colour["original"] = "#c0392b"; colour["rearranged"] = "#2255aa"
    for (line in kind) {
      printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.3\" points=\"", colour[kind[line]]
      for (i = 1; i <= count[line]; i++) printf "%s,%s ", x(step[line, i]), y(loss[line, i])
      print "\"/>"
    }
    text(615, 40, "original arrangement", "text-anchor=\"end\" fill=\"#c0392b\"")
    text(615, 58, "rearranged", "text-anchor=\"end\" fill=\"#2255aa\"")
    print "</svg>"
  }' >"$folder/curves.svg"
echo "Curves: $folder/curves.svg"
