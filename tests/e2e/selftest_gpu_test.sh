#!/bin/bash
# The self-test of GPUs, alone and at the start of training, with faults that the fakes of CUDA's libraries have.
# usage: selftest_gpu_test.sh TRIREME MPIEXEC NODES_SHIM
keep_gpus=yes
source "$(dirname "$0")/functions.sh"
shim=$3

# test_nodes VARIABLE=VALUE...: two ranks stand for two nodes; the variables are those of the second one.
arguments=(selftest --backend cuda --communicator staged --quick --seconds 0.3 --deterministic-mode --json report.json)
test_nodes() {
  timeout -k 5 100 "$mpiexec" -n 1 env LD_PRELOAD="$shim" TRIREME_NODE=0 SLURMD_NODENAME=gpu01 "$trireme" \
    "${arguments[@]}" : -n 1 env LD_PRELOAD="$shim" TRIREME_NODE=1 SLURMD_NODENAME=gpu02 "$@" "$trireme" \
    "${arguments[@]}" >out 2>err
  code=$?
}
# has_fault CHECK DETAIL: a row says that this check failed on the second node.
has_fault() { grep -E "^FAILED +$1 .* gpu02 " out | grep -qF -- "$2"; }

test_nodes TRIREME_FAKE_FAULTS="wrong gelu_aux_bias refused dgelu kernel column_sums flip 256" \
  NVML_STUB_SLOWDOWNS=128 NVML_STUB_UNCORRECTED=3 NVML_STUB_DRIVER=570.2
check "a bad GPU gives exit code 4" [ $code -eq 4 ]
check "its node alone is named, ready for --exclude" [ "$(tail -n 1 out)" = gpu02 ]
forms_of() { grep -A 2 "\"item\": \"$1" report.json | paste -sd ' ' | sed 's/ -- /\n/g' | grep gpu02; }
check "a wrong fused epilogue is found in each type" \
  [ "$(forms_of 'linear bias gelu_tanh kept .*, fused"' | grep -c FAILED)" -eq 3 ]
check "and said to be right in parts" grep -q '"detail": "result .*; right where the epilogue is not fused"' report.json
check "a wrong kernel is found" has_fault "gemm fp32" ", not fused: result 2: element 0 of 72 is "
check "a flipped bit in one repetition is found" has_fault "burn results" "has other bits than the first"
check "a GPU that a power brake slows down is found" has_fault "GPU slowdown" "power brake in "
check "errors of its memory are found" has_fault "GPU ECC errors" "3 uncorrected"
check "a driver that differs is shown" grep -qE '^differs +GPU driver .* 570.2; most ranks: 580.1' out
check "a refused epilogue is no fault" [ -z "$(forms_of 'linear_backward_input gelu_tanh .*, fused"')" ]
check "nor is any row of the first node" [ -z "$(grep -E '^(FAILED|SLOW) .* gpu01 ' out)" ]

# The start of a run: a wrong fused form is replaced, a wrong kernel ends it before anything is written.
make_corpus corpus 1
options=("${run[@]/#8/2}" --backend cuda --metrics-file metrics.jsonl --save saved)
TRIREME_FAKE_FAULTS="wrong gelu_aux_bias" done_by 1 train "${options[@]}"
check "training warns of a wrong fused product" grep -q 'the fused product gives wrong results, and its parts replace it' err
check "and goes on" [ "$(field lm_loss metrics.jsonl | wc -l)" -eq 2 ]
rm -rf metrics.jsonl saved
export TRIREME_FAKE_FAULTS="kernel column_sums"
refused 4 "kernels give wrong results: gemm fp32 linear_backward_weight bias" 1 train "${options[@]}"
check "a run with a wrong kernel writes nothing" [ ! -e metrics.jsonl -a ! -e saved ]
