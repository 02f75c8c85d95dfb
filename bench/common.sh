# shellcheck shell=bash disable=SC2034  # its readers use the variables
# Sourced by the benchmarks that measure on this machine. Sets `root`, the repository, and `work`, a temporary folder that
# is removed at the end; TMPDIR says where.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d -p "${TMPDIR:-/tmp}" trireme-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then  # as in containers; Open MPI requires both variables
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# use_build FOLDER PROGRAM...: sets `build`, by default build/release; exits with 2 if it lacks one of the programs.
use_build() {
  local program
  build=$(realpath -m "${1:-$root/build/release}")
  for program in "${@:2}"; do
    [ -x "$build/$program" ] || { echo "$build/$program is missing: cmake --build --preset release" >&2; exit 2; }
  done
}

# median, least and greatest of a column of numbers
summary() {
  sort -g | awk '{ x[NR] = $1 } END { if (NR) printf "%.9g %.9g %.9g\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'
}

# prose_corpus TRIREME [TEXT_FILE...]: makes $work/text.h5 of the bytes of the first 4 MB of the files, else of
# $TRIREME_TEST_DATA/prose, else of what jobs/quickstart.sh trains on: the King James Bible, by the program bible. Prints its size.
prose_corpus() {
  local trireme=$1
  shift
  if [ $# -gt 0 ]; then
    cat "$@" >"$work/text.txt"
  elif [ -d "${TRIREME_TEST_DATA:-/nonexistent}/prose" ]; then
    find "$TRIREME_TEST_DATA/prose" -type f -name '*.txt' -print0 | sort -z | xargs -0 cat >"$work/text.txt"
  else
    bible -f 'gen1:1-rev22:21' </dev/null | sed 's/^[^ ]* //' >"$work/text.txt"
  fi
  head -c 4000000 "$work/text.txt" | iconv -c -f UTF-8 -t UTF-8 >"$work/cut.txt" || true
  "$trireme" corpus build --input "$work/cut.txt" --output "$work/text.h5" --tokenizer bytes >"$work/log" 2>&1
  echo "text: $(wc -c <"$work/cut.txt") bytes"
}

# final_loss TRIREME NAME OPTION...: trains a small model on $work/text.h5 for $iterations iterations of $batch (16) sequences of 64
# bytes on one core; prints the validation loss at its end. The metrics are in $work/NAME.jsonl.
final_loss() {
  local trireme=$1 name=$2
  shift 2
  taskset -c 0 "$trireme" train --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 \
    --data-path "$work/text.h5" --split 95,5,0 --backend cpu --hidden-dropout 0 --attention-dropout 0 \
    --micro-batch-size 16 --global-batch-size "${batch:-16}" --train-iters "$iterations" --min-lr 0 --lr-decay-style cosine \
    --lr-warmup-fraction 0.1 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1 \
    --eval-interval "$iterations" --eval-iters 20 --metrics-file "$work/$name.jsonl" "$@" >"$work/log" 2>&1 ||
    { tail -5 "$work/log" >&2; return 1; }
  sed -n 's/.*"valid_loss": *\([0-9.]*\).*/\1/p' "$work/$name.jsonl" | tail -1
}
