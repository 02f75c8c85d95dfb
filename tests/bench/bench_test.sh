#!/bin/bash
# usage: bench_test.sh TRIREME MPIEXEC calibration|collectives|kernels|steps
# Runs a benchmark at tiny sizes, and checks its exit status and the columns of every line it prints.
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
source "$(dirname "$0")/../e2e/functions.sh"
build=$(dirname "$trireme")
# measured_by COMMAND...: its output goes to the file `out`.
measured_by() { "$@" >out 2>err || { failed "$*"; exit 1; }; }
# lines COUNT PATTERN [FILE]: the file has this number of lines, and all match.
lines() {
  local file=${3:-out}
  [ "$(wc -l <"$file")" -eq "$1" ] && ! grep -vE "$2" "$file"
}
# Numbers greater than 0, whatever their format.
number='[0-9.]*[1-9][0-9.]*(e[+-][0-9]+)?'

case $3 in
  calibration)
    measured_by "$mpiexec" -np 2 "$build/kernels_calibration" --dry-run --steps 2
    check "a line for every kernel and shape" lines "$(wc -l <out)" \
      '^\{"kernel": "[a-z, ]+", "shape": \[[0-9, ]*\], "work": [0-9]+, "us": [0-9.]+, "calls": [0-9]+, "dtype": "fp32", "ranks": 2, "threads": [0-9]+\}$'
    for kernel in "products, forward" "attention, backward" optimizer step; do
      check "$kernel is among them" grep -q "\"kernel\": \"$kernel\"" out
    done
    ;;
  collectives)
    measured_by "$mpiexec" -np 2 "$build/collectives_bench" --largest-mb 1 --runs 2
    check "six sizes of six operations, with time and both bandwidths" lines 36 \
      '^\{"operation": "(all_reduce|reduce_scatter|all_gather|broadcast|send_receive|all_to_all)", "communicator": "mpi", "group": "world", "ranks": 2, .*"bytes": '"$number, \"time_us\": $number"', .*"algorithm_gbs": [0-9.]+, "bus_gbs": [0-9.]+, "mpi_time_us": '
    check "bus bandwidth of an all-gather of two ranks is half the other" awk -F'"(algorithm|bus)_gbs": ' '
      /"all_gather"/ { seen = 1; if ($3 - $2 / 2 > 0.002 || $2 / 2 - $3 > 0.002) wrong = 1 } END { exit wrong || !seen }' out
    ;;
  kernels)
    measured_by "$build/kernels_gpu_bench" --dry-run --json json
    check "a head with the columns' names" grep -qE '^kernel +shape +type +us +rate +share$' out
    sed -i 1,2d out
    check "a line of the table for every measurement" lines "$(wc -l <json)" \
      ' bf16 +[0-9.]+ +[0-9.]+ (GB/s|TFLOP/s) +[0-9.]+$'
    check "one of JSON, too" lines "$(wc -l <out)" \
      '^\{"kernel": ".+", "shape": ".+", "dtype": "bf16", "us": [0-9.]+, "rate": [0-9.e+-]+, "unit": "(GB|TFLOP)/s", "ceiling": [0-9.e+-]+, "share": [0-9.]+\}$' json
    check "kernels that move memory have copies of several sizes as their ceilings" awk -F'"' '
      !/"unit": "GB/ { next }
      { split($0, rate, /"rate": |, "unit"/); split($0, ceiling, /"ceiling": |, "share"/) }
      $4 == "copy" { copied[rate[2]]; next }
      { kernels[ceiling[2]]; if (!(ceiling[2] in copied)) { print; wrong = 1 } }
      END { exit wrong || length(kernels) < 3 }' json
    for kernel in copy product "layer norm" "rotary embedding" "logits, weight gradient" "attention, causal, dropout 0.1"; do
      check "$kernel is among them" grep -qE "^$kernel  " out
    done
    measured_by "$build/kernels_gpu_bench" --dry-run --attention --json json
    check "--attention measures attention, with its shape" grep -qE \
      '"kernel": "attention, causal, dropout 0.1", "shape": "tiny: [0-9]+ x [0-9]+ x [0-9]+ x [0-9]+"' json
    grep -vE '"(attention.*|its backward)", "shape' json >others
    check "and otherwise only the ceilings" lines 6 '"kernel": "(copy|product)"' others
    measured_by "$build/kernels_gpu_bench" --dry-run --profile --json json
    check "--profile calls the kernels of one model" grep -q '"kernel": "AdamW"' json
    check "and no other" [ "$(grep -c '"kernel": "AdamW"' json)" -eq 1 ]
    ;;
  steps)
    measured_by "$build/step_gpu_bench" --dry-run
    check "step_gpu_bench prints a line for each case" lines 3 \
      "^\\{\"gpu\": \".+\", \"model\": \"tiny\", \"s\": 32, .*\"tensor_ranks\": [12], .*\"ms\": $number, .*\"full_attention_tflops\": [0-9.]+, \"lines\": \\[.*\"line\": \"optimizer\", \"calls\": [0-9]+, \"ms\": $number\\}.*\\]\\}\$"
    cp out steps
    measured_by "$build/step_gpu_bench" --sweep --dry-run
    check "the sweep has a line for each micro-batch, type of moments and dropout" lines 12 \
      "\"micro_batch\": (1|4|16), .*\"moments\": \"(fp32|bf16)\", \"dropout\": (0|0.1), \"decodes\": false, \"fp8\": false, \"ms\": $number"
    check "each of them once" [ "$(grep -oE '"micro_batch": .*"ms"' out | sort -u | wc -l)" -eq 12 ]
    measured_by "$build/step_predict" --compare steps
    check "no GPU's constants are taken for a CPU" grep -q "no constants for the device" out
    measured_by env BUILD="$build" bash "$bench/step/gpu.sh" --predict --json
    check "bench/step/gpu.sh --predict prints a line for each model and GPU, FP8 where it has it" lines 20 \
      "^\\{\"gpu\": \"(H200|H100|A100)\", \"predicted\": true, \"model\": \"(gpt2-.+|llama2-7b)\", .*\"ms\": $number, .*\"lines\": \\[.*\"line\": \"gaps and waits\", \"ms\": $number\\}(, \\{\"line\": \"optimizer beside the next forward\", \"ms\": -$number\\})?\\]\\}\$"
    measured_by bash "$bench/step/gpu.sh" --dry-run "$build"
    check "bench/step/gpu.sh names the conventions" grep -qE '^model +micro-batches +program +tokens/s .*full TFLOP/s +full MFU +causal MFU +ratio$' out
    for micro_batches in 1 2; do
      check "and prints a line for $micro_batches micro-batches" \
        grep -qE "^tiny +$micro_batches +trireme +[0-9]+  \\([0-9]+ to [0-9]+\\) +[0-9.]+ +[0-9.]+ +[0-9.]+ +\$" out
    done
    # The count of llm.c's header, and ids in the vocabulary.
    measured_by bash "$bench/step/gpu.sh" --tokens 1000 512
    check "the tokens are what they are said to be" cmp <(od -An -tu4 -j8 -N4 out | tr -d ' ') <(echo 1000)
    check "all of them in the vocabulary" awk '{ for (i = 1; i <= NF; ++i) { ++n; if ($i > 510) wrong = 1 } } END { exit wrong || n != 1000 }' <(od -An -tu2 -v -j1024 out)
    ;;
esac
