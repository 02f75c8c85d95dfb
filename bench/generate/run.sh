#!/bin/bash
# Times `trireme generate --prompts` by the batch size on this machine's CPU: 32 prompts of 8 to 70 tokens, each continued by
# 32 tokens, greedy, by a GPT-2 of 124M with random weights (or MODEL). One rank with THREADS threads. The batch sizes
# alternate, so that all meet the same load. Prints a table: type, batch, median tokens/s with least and greatest, and the ratio
# of the median to that of batch 1. The time includes the prompts' own positions, not the start and the load of the model.
#
# usage: bench/generate/run.sh [BUILD_FOLDER]    default build/release
# environment: THREADS (default 2), ROUNDS (3), BATCHES ("1 8 32"), DTYPES ("fp32 bf16"), MODEL (gpt2-124m), TOKENS (32)
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
trireme=$(realpath "${1:-$root/build/release}")/trireme
[ -x "$trireme" ] || { echo "$trireme is missing: cmake --build --preset release" >&2; exit 2; }
export TRIREME_THREADS=${THREADS:-2}
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-generate-XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
cd "$work"
quiet() { "$@" >log 2>&1 || { cat log >&2; exit 1; }; }

quiet "$trireme" train --model "${MODEL:-gpt2-124m}" --mock-data --vocab-size 50257 --seq-length 256 \
  --max-position-embeddings 1024 --micro-batch-size 1 --lr 1e-4 --train-iters 0 --eval-iters 0 --no-save-optim --backend cpu --save model
awk 'BEGIN { srand(1); for (i = 0; i < 32; ++i) {
  printf "{\"tokens\": ["
  for (j = 0; j <= 7 + 2 * i; ++j) printf "%s%d", j > 0 ? ", " : "", rand() * 50000
  print "]}" } }' >prompts.jsonl

for type in ${DTYPES:-fp32 bf16}; do
  for _ in $(seq "${ROUNDS:-3}"); do
    for batch in ${BATCHES:-1 8 32}; do
      rm -f results.jsonl
      quiet "$trireme" generate --load model --dtype "$type" --backend cpu --prompts prompts.jsonl --output results.jsonl \
        --max-new-tokens "${TOKENS:-32}" --temperature 0 --batch-size "$batch"
      echo "$type $batch $(sed -n 's|.*: \([0-9.]*\) tokens/s$|\1|p' log)" >>rates
    done
  done
done
echo "| type | batch | tokens/s | least | greatest | ratio |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
sort -k1,1r -k2,2n -k3,3g rates | awk '
  function flush() {
    if (count == 0) return
    median = (x[int((count + 1) / 2)] + x[int((count + 2) / 2)]) / 2
    if (batch == 1) first = median
    printf "| %s | %d | %.1f | %.1f | %.1f | %.1f |\n", type, batch, median, x[1], x[count], first > 0 ? median / first : 1
    count = 0
  }
  $1 != type || $2 != batch { flush(); if ($1 != type) first = 0; type = $1; batch = $2 }
  { x[++count] = $3 }
  END { flush() }'
