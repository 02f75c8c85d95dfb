#!/bin/bash
# Times `trireme generate --prompts` by batch size on this machine's CPU: PROMPTS prompts of random tokens, each continued
# by TOKENS tokens, greedy, by a model with random weights. One rank with THREADS threads. The batch sizes alternate, and
# with them transformers' generate on the same model, prompts and threads where TRIREME_INTERCHANGE_VENV has it: all see
# the same load. Prints a table, each rate the median of the rounds:
#   tokens/s: new tokens by the time of prompts and continuations, without the start and the load of the model; least and
#     greatest; its ratio to batch 1's;
#   prompts: tokens/s of the prompts, by the time that the program reports;
#   decode: tokens/s of the new tokens but the first of each prompt, by the rest of the time;
#   share: decode's part of its limit. A step of B texts reads all weights once, and the keys and values of every text, at
#     the greater rate of a copy and of a sum of squares. It multiplies each weight by B positions, at the speed of the
#     fastest products. The limit takes the longer of the two times, and the best rate and speed that the rounds measured;
#   transformers, ratio: its tokens/s, and the ratio of this program's to them.
# Below the table: how many of fp32's continuations are those of transformers, token by token.
#
# usage: bench/generate/run.sh [BUILD_FOLDER]     default build/release
# environment: THREADS (default 2), ROUNDS (3), BATCHES ("1 2 4 8 16 32"), DTYPES ("fp32 bf16"), MODEL (gpt2-124m; a preset
#   of GPT-2 or Llama), LENGTHS ("32 256": mean tokens of the prompts; they ascend from half of it to one and a half times),
#   PROMPTS (32), TOKENS (32)
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${1:-}" trireme kernels_bench
threads=${THREADS:-2} tokens=${TOKENS:-32} prompts=${PROMPTS:-32}
lengths=${LENGTHS:-32 256} types=${DTYPES:-fp32 bf16} batches=${BATCHES:-1 2 4 8 16 32} model=${MODEL:-gpt2-124m}
python=${TRIREME_INTERCHANGE_VENV:-/nowhere}/bin/python
cd "$work"
export TRIREME_THREADS=$threads HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=
quietly() { "$@" >log 2>&1 || { cat log >&2; return 1; }; }

quietly "$build/trireme" train --model "$model" --mock-data --vocab-size 50257 --seq-length 128 --lr 1e-4 \
  --max-position-embeddings 1024 --micro-batch-size 1 --train-iters 0 --eval-iters 0 --no-save-optim --backend cpu \
  --save model
# Weights that a step reads: all except the positions and, if the output has a separate table, the tokens. Elements of the
# keys and values of a position.
read -r weights cached < <("$build/trireme" checkpoint inspect model 2>log | awk '
  $1 ~ /^model\// && $2 ~ /^fp/ {
    gsub(/[][,]/, " ")
    size = $3
    for (i = 4; $i ~ /^[0-9]+$/; ++i) size *= $i
    if ($1 == "model/wte") table = size
    else if ($1 != "model/wpe") sum += size
    if ($1 == "model/lm_head.weight") own = 1
  }
  $1 ~ /^model[.](layers|kv_heads|kv_channels)$/ { cached = (cached ? cached : 2) * $2 }
  END { print sum + (own ? 0 : table), cached }')
# Prompts ascend in length, so that transformers pads little.
for length in $lengths; do
  awk -v n="$prompts" -v mean="$length" 'BEGIN {
    srand(1)
    for (i = 0; i < n; ++i) {
      printf "{\"tokens\": [%d", rand() * 50000
      for (j = int(mean / 2 + mean * (i + 0.5) / n); j > 1; --j) printf ", %d", rand() * 50000
      print "]}"
    }
  }' >"prompts.$length"
done
peer=no
if "$python" -c 'import torch, transformers' 2>/dev/null; then
  peer=yes
  quietly "$build/trireme" checkpoint export --load model --output exported --dtype fp32
fi

# generate TYPE BATCH LENGTH: tokens of the prompts, new tokens, seconds, and those of the prompts
generate() {
  rm -f results
  quietly "$build/trireme" generate --load model --dtype "$1" --backend cpu --prompts "prompts.$3" --output results \
    --max-new-tokens "$tokens" --temperature 0 --batch-size "$2"
  sed -n 's/.* of \([0-9]*\) tokens by \([0-9]*\) tokens in \([0-9.]*\) s, \([0-9.]*\) s of .*/\1 \2 \3 \4/p' log
}

# limits TYPE: GB/s of memory and GFLOP/s of products
limits() {
  "$build/kernels_bench" --benchmark_format=json --benchmark_min_time=0.05 \
    --benchmark_filter="^fp32/sum_squares|^$1/h768/proj/forward/" 2>log | awk -F'[:,]' '
      /"name"/ { memory = /sum_squares/ }
      memory && /"(GB\/s|ceiling)"/ && $2 > rate { rate = $2 }
      !memory && /"ceiling"/ && $2 > speed { speed = $2 }
      END { print rate, speed }'
}

for type in $types; do
  if [ $peer = yes ]; then
    peer_command=("$python" "$root/bench/peers/transformers_generate.py" exported "$type" "$threads" "$tokens")
    coproc PEER { exec "${peer_command[@]}" 2>peer.log; }
    pid=$PEER_PID answers=${PEER[0]} questions=${PEER[1]}
  fi
  for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
    echo "limits $type $(limits "$type")" >>measured
    for length in $lengths; do
      for batch in $batches; do
        echo "own $type $length $batch $(generate "$type" "$batch" "$length")" >>measured
        [ $peer = yes ] || continue
        echo "$batch prompts.$length" >&"$questions"
        read -r rate <&"$answers" || { cat peer.log >&2; exit 1; }
        echo "peer $type $length $batch $rate" >>measured
        [ "$type" = fp32 ] || continue
        sed 's/.*"tokens":\(\[[^]]*\]\).*/\1/; s/ //g' results >own.tokens
        sed 's/ //g' "prompts.$length.peer" | paste own.tokens - |
          awk -F'\t' '{ same += $1 == $2 } END { print "same", same + 0, NR }' >>measured
      done
    done
  done
  if [ $peer = yes ]; then
    exec {questions}>&-
    wait "$pid"
  fi
done

[ $peer = no ] || tail -1 peer.log
awk -v model="$model" -v weights="$weights" -v cached="$cached" -v tokens="$tokens" -v prompts="$prompts" \
  -v types="$types" -v lengths="$lengths" -v batches="$batches" '
  function add(key, value) { x[key, ++count[key]] = value }
  # Median of the values of a key, and their least and greatest.
  function median(key,   n, i, j, t) {
    n = count[key]
    for (i = 2; i <= n; ++i) for (j = i; j > 1 && x[key, j] < x[key, j - 1]; --j) {
      t = x[key, j]; x[key, j] = x[key, j - 1]; x[key, j - 1] = t
    }
    least = x[key, 1]; greatest = x[key, n]
    return (x[key, int((n + 1) / 2)] + x[key, int((n + 2) / 2)]) / 2
  }
  function larger(a, b) { return a > b ? a : b }
  $1 == "limits" { memory[$2] = larger(memory[$2], $3 + 0); speed[$2] = larger(speed[$2], $4 + 0) }
  $1 == "own" {
    key = $2 SUBSEP $3 SUBSEP $4
    add("own" SUBSEP key, $6 / $7)
    add("prompts" SUBSEP key, $5 / $8)
    add("decode" SUBSEP key, ($6 - prompts) / ($7 - $8))
  }
  $1 == "peer" { add("peer" SUBSEP $2 SUBSEP $3 SUBSEP $4, $5) }
  $1 == "same" { same += $2; compared += $3 }
  END {
    split(types, type, " "); split(lengths, length_of, " "); split(batches, batch, " ")
    for (t = 1; t in type; ++t) {
      printf "%s: %.1f GB/s of memory, %.0f GFLOP/s of products\n", type[t], memory[type[t]], speed[type[t]]
    }
    printf "weights that a step reads: %.1f million; keys and values of a position: %d numbers\n\n", weights / 1e6, cached
    print "| model | type | prompt | batch | tokens/s | to batch 1 | prompts | decode | share | transformers | ratio |"
    print "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (t = 1; t in type; ++t) for (l = 1; l in length_of; ++l) for (b = 1; b in batch; ++b) {
      key = type[t] SUBSEP length_of[l] SUBSEP batch[b]
      filling = median("prompts" SUBSEP key)
      decode = median("decode" SUBSEP key)
      peer = count["peer" SUBSEP key] > 0 ? median("peer" SUBSEP key) : 0
      own = median("own" SUBSEP key)
      if (b == 1) alone = batch[1] == 1 ? own : 0
      numbers = weights + batch[b] * (length_of[l] + tokens / 2) * cached
      step = larger(numbers * (type[t] == "fp32" ? 4 : 2) / memory[type[t]], 2 * weights * batch[b] / speed[type[t]]) / 1e9
      printf "| %s | %s | %d | %d | %.1f (%.1f to %.1f) | %s ", model, type[t], length_of[l], batch[b], own, least, greatest,
        alone ? sprintf("%.1f", own / alone) : "-"
      printf "| %.0f | %.1f | %.2f | %s |\n", filling, decode, decode * step / batch[b],
        peer ? sprintf("%.1f | %.1f", peer, own / peer) : "- | -"
    }
    if (compared) printf "\n%d of %d continuations in fp32 are those of transformers, token by token\n", same, compared
  }' measured
