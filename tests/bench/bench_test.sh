#!/bin/bash
# usage: bench_test.sh calibration|collectives|kernels|steps BUILD_FOLDER MPIRUN
# Runs a benchmark at tiny sizes, and checks its exit status and the columns of every line it prints.
set -uo pipefail
build=$2 mpirun=$3
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
# check WHAT COMMAND...
check() {
  if "${@:2}"; then
    echo "passed: $1"
  else
    echo "FAILED: $1"
    failures=$((failures + 1))
  fi
}
# done_by COMMAND...: its output goes to the file `out`.
done_by() {
  if ! "$@" >"$scratch/out" 2>"$scratch/err"; then
    echo "FAILED: $*"
    cat "$scratch/out" "$scratch/err"
    exit 1
  fi
}
# lines COUNT PATTERN [FILE]: the file has this number of lines, and all match.
lines() {
  local file=${3:-$scratch/out}
  [ "$(wc -l <"$file")" -eq "$1" ] && ! grep -vE "$2" "$file"
}
# Numbers greater than 0, whatever their format.
number='[0-9.]*[1-9][0-9.]*(e[+-][0-9]+)?'

case $1 in
  calibration)
    done_by "$mpirun" -np 2 "$build/kernels_calibration" --dry-run --steps 2
    check "a line for every kernel and shape" lines "$(wc -l <"$scratch/out")" \
      '^\{"kernel": "[a-z, ]+", "shape": \[[0-9, ]*\], "work": [0-9]+, "us": [0-9.]+, "calls": [0-9]+, "dtype": "fp32", "ranks": 2, "threads": [0-9]+\}$'
    for kernel in "products, forward" "attention, backward" optimizer step; do
      check "$kernel is among them" grep -q "\"kernel\": \"$kernel\"" "$scratch/out"
    done
    ;;
  collectives)
    done_by "$mpirun" -np 2 "$build/collectives_bench" --largest-mb 1 --runs 2
    check "six sizes of five operations, with time and both bandwidths" lines 30 \
      '^\{"operation": "(all_reduce|reduce_scatter|all_gather|broadcast|send_receive)", "communicator": "mpi", "group": "world", "ranks": 2, .*"bytes": '"$number, \"time_us\": $number"', .*"algorithm_gbs": [0-9.]+, "bus_gbs": [0-9.]+, "mpi_time_us": '
    check "bus bandwidth of an all-gather of two ranks is half the other" awk -F'"(algorithm|bus)_gbs": ' '
      /"all_gather"/ { seen = 1; if ($3 - $2 / 2 > 0.002 || $2 / 2 - $3 > 0.002) wrong = 1 } END { exit wrong || !seen }' "$scratch/out"
    ;;
  kernels)
    done_by "$build/kernels_gpu_bench" --dry-run --json "$scratch/json"
    check "a head with the columns' names" grep -qE '^kernel +shape +type +us +rate +share$' "$scratch/out"
    sed -i 1,2d "$scratch/out"
    check "a line of the table for every measurement" lines "$(wc -l <"$scratch/json")" \
      ' bf16 +[0-9.]+ +[0-9.]+ (GB/s|TFLOP/s) +[0-9.]+$'
    check "one of JSON, too" lines "$(wc -l <"$scratch/out")" \
      '^\{"kernel": ".+", "shape": ".+", "dtype": "bf16", "us": [0-9.]+, "rate": [0-9.e+-]+, "unit": "(GB|TFLOP)/s", "ceiling": [0-9.e+-]+, "share": [0-9.]+\}$' "$scratch/json"
    check "kernels that move memory have copies of several sizes as their ceilings" awk -F'"' '
      !/"unit": "GB/ { next }
      { split($0, rate, /"rate": |, "unit"/); split($0, ceiling, /"ceiling": |, "share"/) }
      $4 == "copy" { copied[rate[2]]; next }
      { kernels[ceiling[2]]; if (!(ceiling[2] in copied)) { print; wrong = 1 } }
      END { exit wrong || length(kernels) < 3 }' "$scratch/json"
    for kernel in copy product "layer norm" "rotary embedding" "logits, weight gradient" "attention, causal, dropout 0.1"; do
      check "$kernel is among them" grep -qE "^$kernel  " "$scratch/out"
    done
    done_by "$build/kernels_gpu_bench" --dry-run --attention --json "$scratch/json"
    check "--attention measures attention, with its shape" grep -qE \
      '"kernel": "attention, causal, dropout 0.1", "shape": "tiny: [0-9]+ x [0-9]+ x [0-9]+ x [0-9]+"' "$scratch/json"
    grep -vE '"(attention.*|its backward)", "shape' "$scratch/json" >"$scratch/others"
    check "and otherwise only the ceilings" lines 2 '"kernel": "(copy|product)"' "$scratch/others"
    done_by "$build/kernels_gpu_bench" --dry-run --profile --json "$scratch/json"
    check "--profile calls the kernels of one model" grep -q '"kernel": "AdamW"' "$scratch/json"
    check "and no other" [ "$(grep -c '"kernel": "AdamW"' "$scratch/json")" -eq 1 ]
    ;;
  steps)
    done_by "$build/step_gpu_bench" --dry-run
    check "step_gpu_bench prints a line for each case" lines 3 \
      "^\\{\"gpu\": \".+\", \"model\": \"tiny\", \"s\": 32, .*\"tensor_ranks\": [12], .*\"ms\": $number, .*\"full_attention_tflops\": [0-9.]+, \"lines\": \\[.*\"line\": \"optimizer\", \"calls\": [0-9]+, \"ms\": $number\\}.*\\]\\}\$"
    cp "$scratch/out" "$scratch/steps"
    done_by "$build/step_gpu_bench" --sweep --dry-run
    check "the sweep has a line for each micro-batch, type of moments and dropout" lines 12 \
      "\"micro_batch\": (1|4|16), .*\"moments\": \"(fp32|bf16)\", \"dropout\": (0|0.1), \"ms\": $number"
    check "each of them once" [ "$(grep -oE '"micro_batch": .*"ms"' "$scratch/out" | sort -u | wc -l)" -eq 12 ]
    done_by "$build/step_predict" --compare "$scratch/steps"
    check "no GPU's constants are taken for a CPU" grep -q "no constants for the device" "$scratch/out"
    done_by env BUILD="$build" bash "$source_folder/bench/step/gpu.sh" --predict --json
    check "bench/step/gpu.sh --predict prints a line for each model and GPU" lines 12 \
      "^\\{\"gpu\": \"(H200|H100|A100)\", \"predicted\": true, \"model\": \"gpt2-.+\", .*\"ms\": $number, .*\"lines\": \\[.*\"line\": \"gaps and waits\", \"ms\": $number\\}\\]\\}\$"
    done_by bash "$source_folder/bench/step/gpu.sh" --dry-run "$build"
    check "bench/step/gpu.sh names the conventions" grep -qE '^model +micro-batches +program +tokens/s .*full TFLOP/s +full MFU +causal MFU +ratio$' "$scratch/out"
    for micro_batches in 1 2; do
      check "and prints a line for $micro_batches micro-batches" \
        grep -qE "^tiny +$micro_batches +trireme +[0-9]+  \\([0-9]+ to [0-9]+\\) +[0-9.]+ +[0-9.]+ +[0-9.]+ +\$" "$scratch/out"
    done
    # The count of llm.c's header, and ids in the vocabulary.
    done_by bash "$source_folder/bench/step/gpu.sh" --tokens 1000 512
    check "the tokens are what they are said to be" cmp <(od -An -tu4 -j8 -N4 "$scratch/out" | tr -d ' ') <(echo 1000)
    check "all of them in the vocabulary" awk '{ for (i = 1; i <= NF; ++i) { ++n; if ($i > 510) wrong = 1 } } END { exit wrong || n != 1000 }' <(od -An -tu2 -v -j1024 "$scratch/out")
    ;;
esac
[ $failures -eq 0 ]
