# Sourced by tests/gpu.sh: run_part NAME runs a part of its table. It prints what it finds, leaves data in $results, and ends
# with 0 (passed), 77 (skipped: its last line is the reason) or another exit status (failed).
export TRIREME_REQUIRE_GPU=1
[ ! -d "$folder/fixtures" ] || export TRIREME_FIXTURES=$folder/fixtures
algorithms=$results/gemm_algorithms
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')

skip() { echo "$*" && exit 77; }
needs_mpirun() { [ -n "$(command -v mpirun)" ] || skip "there is no mpirun here"; }
# script NAME: its path, in an archive or in the source tree.
script() {
  local place
  for place in "$folder" "$here" "$here/.."; do [ ! -f "$place/$1" ] || { echo "$place/$1" && return; }; done
}
# tool NAME: path of a program of CUDA's toolkit.
tool() {
  local places=(/opt/nvidia/nsight-compute/*/)
  PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:${places[-1]} command -v "$1"
}
# PyTorch finds its own libraries.
peers_python() { LD_LIBRARY_PATH=$TRIREME_OUTSIDE_LIBRARIES "${PYTHON:-python3}" "$@"; }
# skip_without_pytorch: to be called after this program's own measurements.
skip_without_pytorch() {
  local reason
  reason=$(peers_python -c 'import torch' 2>&1) || skip "measured this program alone, without PyTorch: ${reason##*$'\n'}"
}
# peers MODEL...: training steps beside PyTorch's.
peers() {
  GEMM_CACHE=$algorithms MODELS=$* STEPS=15 bash "$(script bench/step/gpu.sh)" "$folder" && skip_without_pytorch
}
# Faults in kernels after which the GPU is lost to the process that started them.
gpu_is_lost='cudaError(IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction|InvalidPc|InvalidAddressSpace|HardwareStackError|Assert)'
# suites PROGRAM [SECONDS]: each suite of tests as a process of its own, with this limit or none. After such a fault, after a
# crash, or at the limit, the tests that have not begun run in a further process, once: those of attention without its kernels
# by warp groups. After one that hung, so do the suites that follow.
suites() {
  local suite listed tests output begun test groups code reason status=0
  listed=$("$folder/$1" --gtest_list_tests 2>&1 | grep -oE '^[A-Za-z0-9_/]+\.')
  [ -n "$listed" ] || exec "$folder/$1"
  output=$(mktemp)
  for suite in $listed; do
    tests=$suite* groups=${TRIREME_WARP_GROUPS:-}
    for _ in 1 2; do
      TRIREME_WARP_GROUPS=$groups timeout -k 2 "${2:-0}" "$folder/$1" --gtest_color=no "--gtest_filter=$tests" 2>&1 | tee "$output"
      code=${PIPESTATUS[0]}
      [ "$code" -ne 0 ] || break
      status=1
      begun=$(awk -v lost="$gpu_is_lost" '/^\[ RUN / { print $NF } $0 ~ lost { exit }' "$output")
      test=$(running_test "$output")
      reason=$(grep -m1 -oE "$gpu_is_lost" "$output") && test=$(tail -n 1 <<<"$begun")
      case $code.${2:-0} in
        1.*) [ -n "$reason" ] || break ;;
        124.[1-9]* | 137.[1-9]*) reason="ended at its limit of $2 s" ;;
        *) reason="exit status $code${reason:+, $reason}" ;;
      esac
      echo "FAILED: ${test:-${suite%.}}: $reason"
      tests="$suite*-$(paste -sd: <<<"$begun")"
      [[ $test == *FlashAttention* ]] || continue
      groups=off
      [[ $reason != ended* ]] || without_warp_groups
    done
  done
  rm "$output"
  return $status
}
# without_warp_groups: keeps the kernels of attention by warp groups off from here on. One that hangs would take a part's time.
without_warp_groups() {
  [ "${TRIREME_WARP_GROUPS:-}" != off ] || return 0
  echo "from here on with TRIREME_WARP_GROUPS=off: attention without its kernels by warp groups"
  export TRIREME_WARP_GROUPS=off
}
# without_hung_kernels: the same, if a test of these kernels hung in this phase.
without_hung_kernels() {
  local tests=$results/kernels.txt
  [ -f "$tests" ] || return 0
  [[ $(grep '^FAILED: .*: ended at its limit' "$tests")$(running_test "$tests") != *FlashAttention* ]] || without_warp_groups
}
# steps FILE [ARGUMENT...]: times of training steps. After a failure of the GPU once more, without kernels by warp groups: the
# lines of both are kept.
steps() {
  local code
  "$folder/step_gpu_bench" "${@:2}" --gemm-cache "$algorithms" | tee "$1"
  code=${PIPESTATUS[0]}
  if [ "$code" -gt 1 ] && [ "${TRIREME_WARP_GROUPS:-}" != off ]; then
    without_warp_groups
    "$folder/step_gpu_bench" "${@:2}" --gemm-cache "$algorithms" | tee -a "$1"
  fi
  return "$code"
}
# sanitize TOOL PROGRAM [ARGUMENT...]: under compute-sanitizer, which cannot watch the GPU in some containers.
sanitize() {
  local sanitizer output problem
  sanitizer=$(tool compute-sanitizer) || skip "there is no compute-sanitizer here"
  output=$(timeout 30 "$sanitizer" --error-exitcode 1 "$folder/cuda_gpu_kernels_test" --gtest_filter=Swiglu.HandWorkedRow 2>&1)
  case $? in
    0) ;;
    124) skip "compute-sanitizer did not end a small test within 30 s" ;;
    *)
      problem=$(grep -m1 -iE 'not supported|error 999|unknown error|internal error|unable to' <<<"$output") &&
        skip "compute-sanitizer cannot watch this GPU: ${problem//=/}"
      ;;
  esac
  "$sanitizer" --tool "$1" --error-exitcode 1 "$folder/$2" --gtest_color=no "${@:3}"
}
# experiment SECONDS COMMAND...: tests that the machine may not allow, which is no failure: NCCL refuses them, or they take too
# long. A wrong result is a failure.
experiment() {
  local output code refusal
  output=$(mktemp)
  timeout -k 2 "$1" "${@:2}" 2>&1 | tee "$output"
  code=${PIPESTATUS[0]}
  refusal=$(grep -m1 -oE '(nccl[A-Z]|NCCL: )[^;]* failed[^;]*' "$output")
  rm "$output"
  [ "$code" -ne 0 ] || return 0
  [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || skip "NCCL's ranks on one GPU did not end within $1 s"
  [ -z "$refusal" ] || skip "NCCL refuses two ranks on one GPU: $refusal"
  exit "$code"
}

# Fifteen kernels of a training step of GPT-2, for ncu.
profiled='flash_attention|warp_group_attention|warp_group_query_gradient|warp_group_key_gradient|flash_query_gradient|flash_key_gradient|normalise|bias_dropout_add_norm|norm_backward|'
profiled+='drop_gradient_and_sum|statistics|backward|lookup_backward|sum_block|adamw'
# Under the sanitizer, sizes that take too long are left out, and runs that repeat others.
short='--gtest_filter=*bf16*:*fp32*:*Match*fp16*-*1025x*:*300x*:*270x*:*Threads*:*SameBits*'

run_part() {
  case $1 in steps | kernel_times | peer) without_hung_kernels ;; esac
  case $1 in
    info)
      nvidia-smi && nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,ECC,COMPUTE
      local info
      info=$("$folder/trireme" info) && echo "$info" && grep -q '^backend   cuda' <<<"$info"
      ;;
    kernels) suites cuda_gpu_kernels_test 30 ;;
    fp8) "$folder/cuda_gpu_test" --gtest_color=no "--gtest_filter=*Fp8*" ;;
    shapes) suites cuda_gpu_shapes_test ;;
    training) suites cuda_gpu_training_test ;;
    runtime) suites cuda_gpu_test 60 ;;
    steps) steps "$results/steps.jsonl" ;;
    sweep) steps "$results/sweep.jsonl" --sweep ;;
    predicted)
      [ -s "$results/steps.jsonl" ] || skip "no step was measured"
      "$folder/step_predict" --compare "$results/steps.jsonl"
      ;;
    kernel_times) "$folder/kernels_gpu_bench" --gemm-cache "$algorithms" --json "$results/kernels.jsonl" ;;
    peer) peers gpt2-1.2b ;;
    peers) peers gpt2-124m gpt2-355m ;;
    program)
      needs_mpirun
      # A process that hangs must not take the time of the others.
      run_limit=40 TRIREME_TEST_RANKS=$((2 * (gpus > 0 ? gpus : 1))) bash "$(script e2e/gpu_test.sh)" "$folder/trireme" mpirun
      ;;
    ranks) needs_mpirun && mpirun -np 2 "$folder/cuda_gpu_ranks_test" --gtest_color=no ;;
    grids)
      needs_mpirun && mpirun -np 2 "$folder/cuda_gpu_grid_test" --gtest_color=no || exit
      [ "$gpus" -lt 2 ] || mpirun -np 4 "$folder/cuda_gpu_grid_test" --gtest_color=no
      ;;
    nccl)
      # One GPU is not enough for two ranks of NCCL, unless they are on two machines. So NCCL takes the ranks for two
      # machines (cuda/nccl/gpu_table.hpp), which use sockets. Kernels of two processes that wait for each other take turns.
      needs_mpirun
      local two_machines=(mpirun -np 2 env NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0
        NCCL_MNNVL_ENABLE=0 bash -c 'NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK exec "$0" "$@"')
      experiment 20 "${two_machines[@]}" "$folder/cuda_gpu_ranks_test" --gtest_color=no "--gtest_filter=GpuNccl.*"
      experiment 32 "${two_machines[@]}" "$folder/cuda_gpu_grid_test" --gtest_color=no \
        "--gtest_filter=GpuGrid.ComputesTheLosses*:*MessagesOf*"
      ;;
    ncu)
      local ncu
      ncu=$(tool ncu) || skip "there is no ncu here"
      # The clocks stay as they are. Some kernels run twice: layer norm and RMSNorm, without and with dropout.
      "$ncu" --clock-control none --set detailed --kernel-name "regex:.*\\b($profiled)_kernel\$" --launch-count 24 --force-overwrite \
        --export "$results/kernels" "$folder/kernels_gpu_bench" --profile --gemm-cache "$algorithms" >"$results/ncu.log" 2>&1 || {
        cat "$results/ncu.log"
        ! grep -m1 -E 'ERR_NVGPUCTRPERM|LibraryNotLoaded|not supported' "$results/ncu.log" || exit 77
        exit 1
      }
      "$ncu" --import "$results/kernels.ncu-rep" --page details
      ;;
    attention)
      "$folder/kernels_gpu_bench" --attention --gemm-cache "$algorithms" --json "$results/attention.jsonl" || exit
      skip_without_pytorch
      peers_python "$(script bench/peers/attention_pytorch.py)" "$results/attention.jsonl"
      ;;
    *check_kernels) sanitize "${1%_kernels}" cuda_gpu_kernels_test "$short" ;;
    *check_shapes) TRIREME_TEST_SMALL=1 sanitize "${1%_shapes}" cuda_gpu_shapes_test ;;
    collectives)
      needs_mpirun # a group of one rank copies, without NCCL
      local with=(--backend cuda --largest-mb 64)
      [ "$gpus" -ge 2 ] || with=(--backend cuda --communicator staged --largest-mb 4)
      mpirun -np $((gpus > 2 ? gpus : 2)) "$folder/collectives_bench" "${with[@]}" | tee "$results/collectives.jsonl"
      ;;
    *) echo "there is no part '$1': tests/gpu.sh --list" && exit 2 ;;
  esac
}
