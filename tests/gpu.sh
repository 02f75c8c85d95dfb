#!/bin/bash
# The tests that need a GPU, and the benchmarks. Builds nothing: runs the programs of a build folder, or of what --pack
# made there, on a machine with a GPU, its driver and the CUDA libraries (cuBLASLt, NCCL), and neither development packages
# nor MPI.
# usage: tests/gpu.sh [FOLDER]           the programs of FOLDER; default build/release
#        tests/gpu.sh --pack FOLDER      from build/release: FOLDER then has the programs, their libraries, Open MPI's part
#                                        for one machine, test data, and this script; FOLDER.tar.xz is all of it, to be
#                                        carried: tar xJf FOLDER.tar.xz (or python3 -m tarfile -e), FOLDER/gpu.sh
# The build that is packed runs on any x86-64-v3 processor: cmake --preset release -D TRIREME_MARCH=x86-64-v3.
# Exit status 1 where a test failed or was not run; an experiment that the machine does not let be made is UNKNOWN.
# FOLDER/gpu-results.txt is the table of results, a line as each comes, FOLDER/gpu-log.txt what was printed; the table is
# printed last. Tests come first; all of it ends within eight minutes (TRIREME_GPU_SECONDS, default 470), and no part
# takes more than its own share of that.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(cuda_gpu_test cuda_gpu_kernels_test cuda_gpu_shapes_test cuda_gpu_training_test cuda_gpu_ranks_test cuda_gpu_grid_test trireme)
benchmarks=(kernels_gpu_bench step_gpu_bench step_predict collectives_bench)
peer=(bench/step/gpu.sh bench/peers/gpt2_pytorch.py)

# libraries_of FILE...: what they need, but for what belongs to the system and to CUDA: the machine with the GPU has its own.
libraries_of() {
  for file in "$@"; do ldd "$file"; done 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|ld-linux[^/]*|libcuda|libcublas|libcublasLt|libnccl)\.so'
}

# Open MPI, with its plug-ins for processes of one machine.
pack_mpi() {
  local to=$1 library plugins
  library=$(ldd "$folder/libtrireme_program.so" | awk '/libmpi\.so/ { print $3 }')
  plugins=$(ompi_info --path pkglibdir --parsable | cut -d: -f3-)/openmpi3
  [ -d "$plugins" ] || plugins=$(dirname "$(readlink -f "$library")")/openmpi/lib/openmpi3
  mkdir -p "$to"/{bin,plugins,pmix,share/openmpi,etc}
  cp -L "$(command -v orterun)" "$to/bin/mpirun"
  cp -L "$(command -v orted)" "$to/bin/orted"
  # Networks, batch systems and checkpointing stay behind.
  for plugin in "$plugins"/*.so; do
    [[ $plugin =~ ucx|ofi|openib|usnic|psm|verbs|portals|uct|slurm|_tm|lsf|gridengine|lustre|pvfs|hcoll|oshmem|spml|scoll ]] ||
      cp -L "$plugin" "$to/plugins"
  done
  cp -L /usr/lib/*/pmix2/lib/pmix/*.so "$to/pmix" 2>/dev/null
  cp /usr/share/openmpi/help-*.txt "$to/share/openmpi" 2>/dev/null
  : >"$to/etc/openmpi-mca-params.conf"
  libraries_of "$to"/bin/* "$to"/plugins/*.so "$to"/pmix/*.so
}

if [ "${1:-}" = --pack ]; then
  set -e
  folder=${2:?usage: tests/gpu.sh --pack FOLDER}
  build=$(cd "$here/../build/release" && pwd)
  march=$(sed -n 's/^TRIREME_MARCH:[A-Z]*=//p' "$build/CMakeCache.txt")
  if [ "$march" != x86-64-v3 ] && [ "$march" != x86-64-v2 ] && [ "$march" != x86-64 ]; then
    echo "$build was built for the processor '$march' and may not run on another one: cmake --preset release" \
      "-D TRIREME_MARCH=x86-64-v3, build, and pack again" >&2
    exit 2
  fi
  if [ -e "$folder" ] && [ ! -e "$folder/gpu.sh" ]; then
    echo "$folder is there, and nothing that this script has packed: name a new folder" >&2
    exit 2
  fi
  rm -rf "$folder"
  mkdir -p "$folder/lib"
  folder=$(cd "$folder" && pwd)
  for program in "${programs[@]}" "${benchmarks[@]}"; do cp "$build/$program" "$folder"; done
  cp "$build"/libtrireme_program.so "$folder"  # the executable looks for it beside itself
  cp "$build"/libtrireme_cuda.so "$folder/lib"
  { libraries_of "${programs[@]/#/$folder/}" "${benchmarks[@]/#/$folder/}" "$build"/libtrireme_{program,cuda}.so; pack_mpi "$folder/mpi"; } |
    sort -u | while read -r library; do cp -L "$library" "$folder/lib"; done
  find "$folder" -type f \( -name '*.so*' -o -perm -100 \) -print0 | xargs -0 strip --strip-unneeded
  cp -r "$here/e2e" "$here/fixtures" "$here/gpu.sh" "$here/gpu_environment.sh" "$folder"
  (cd "$here/.." && cp --parents "${peer[@]}" "$folder")
  echo "trireme $("$build/trireme" info | sed -n 's/^trireme *//p'), -march=$march" >"$folder/build.txt"
  # One window for all of it: the programs hold the same kernels.
  tar -C "$(dirname "$folder")" --sort=name -cf - "$(basename "$folder")" | xz -T1 -6 --lzma2=preset=6,dict=96MiB >"$folder.tar.xz"
  du -sh "$folder" "$folder.tar.xz"
  exit
fi

if [ $# -gt 0 ]; then folder=$1; elif [ -x "$here/${programs[0]}" ]; then folder=$here; else folder=$here/../build/release; fi
folder=$(cd "$folder" && pwd) || exit 1

source "$here/gpu_environment.sh"
export TRIREME_REQUIRE_GPU=1
export TRIREME_TEST_SEED=${TRIREME_TEST_SEED:-$((RANDOM * 32768 + RANDOM))} # seed of random inputs
if [ -d "$folder/fixtures" ]; then export TRIREME_FIXTURES=$folder/fixtures; fi

results=$folder/gpu-results.txt
log=$folder/gpu-log.txt
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
SECONDS=0
limit=${TRIREME_GPU_SECONDS:-470}
: >"$log"
{
  if [ -f "$folder/build.txt" ]; then cat "$folder/build.txt"; else "$folder/trireme" info 2>&1 | head -1; fi
  echo "$(uname -n), $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), $(date -u +%Y-%m-%dT%H:%MZ)"
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
  echo "random inputs of TRIREME_TEST_SEED=$TRIREME_TEST_SEED"
} >"$results"
cat "$results"

# start SECONDS FILE COMMAND...: runs the command, no longer than this or than there is time; its output goes to FILE.
start() {
  local left=$((limit - SECONDS)) most=$1 file=$2
  shift 2
  : >"$file"
  [ "$left" -ge 5 ] || return 125
  timeout -k 5 $((left < most ? left : most)) "$@" >"$file" 2>&1 </dev/null
}
# outcome CODE GOOD
outcome() {
  case $1 in 0) echo "$2" ;; 124 | 137) echo TIMEOUT ;; 125) echo "NOT RUN" ;; *) echo FAILED ;; esac
}
# note OUTCOME SECONDS TEXT [FILE]: a line of the table, and what was printed.
note() {
  {
    flock 9
    [ -z "${4:-}" ] || { printf '\n=== %s\n' "$3"; cat "$4"; } >>"$log"
    case $1 in passed | measured) ;; *) [ -z "${4:-}" ] || tail -n 15 "$4" ;; esac
    printf '%-10s %4s s  %s\n' "$1" "$2" "$3" | tee -a "$results"
  } 9>>"$parts/lock"
}
# run NAME SECONDS COMMAND...: a test program.
run() {
  local begun=$SECONDS file code
  file=$(mktemp -p "$parts")
  start "$2" "$file" "${@:3}"
  code=$?
  note_tests "$(outcome $code passed)" $((SECONDS - begun)) $code "$1" "$file"
}
# note_tests OUTCOME SECONDS CODE NAME FILE
note_tests() {
  grep -E '^(\[  FAILED  \].*ms\)$|FAILED: )' "$5" | head -20
  note "$1" "$2" "$4: $(grep -cE '^(\[       OK|passed: )' "$5") tests passed, $(
    grep -cE '^(\[  FAILED  \].*ms\)$|FAILED: )' "$5") failed$([ "$3" -lt 126 ] || echo ", exit status $3")" "$5"
}
# experiment NAME SECONDS COMMAND...: tests of what a machine may not let be done, which is no failure: NCCL refuses, or
# it takes too long. A result that is wrong is one.
experiment() {
  local begun=$SECONDS file code as
  file=$(mktemp -p "$parts")
  start "$2" "$file" "${@:3}"
  code=$?
  as=$(outcome $code passed)
  case $as in TIMEOUT | "NOT RUN") as=UNKNOWN ;; FAILED) ! grep -qE '(nccl[A-Z]|NCCL: )[^;]* failed' "$file" || as=UNKNOWN ;; esac
  note_tests "$as" $((SECONDS - begun)) $code "experiment: $1" "$file"
  [ "$as" = passed ]
}
# suites NAME SECONDS PROGRAM: each suite of a program as a process of its own: after a fault in a kernel the GPU is lost to
# the process that started it.
suites() {
  local suite listed
  listed=$("$folder/$3" --gtest_list_tests 2>&1 | grep -oE '^[A-Za-z0-9_/]+\.')
  [ -n "$listed" ] || run "$1" "$2" "$folder/$3"
  for suite in $listed; do
    run "$1, ${suite%.}" "$2" "$folder/$3" --gtest_color=no "--gtest_filter=$suite*"
  done
}
# measure NAME SECONDS FILE COMMAND...: a benchmark, whose output goes to FILE.
measure() {
  local name=$1 most=$2 file=$folder/$3 begun=$SECONDS code
  shift 3
  start "$most" "$file" "$@"
  code=$?
  note "$(outcome $code measured)" $((SECONDS - begun)) "$name: see ${file##*/}" "$file"
}

# Tests run beside each other: what takes them long is the reference on the host.
suites "runtime, products and NCCL, one rank" 90 cuda_gpu_test &
suites "kernels" 60 cuda_gpu_kernels_test &
suites "kernels at the shapes of models" 120 cuda_gpu_shapes_test &
suites "training, one rank" 120 cuda_gpu_training_test &
probe='' sanitizer_problem="there is no compute-sanitizer here"
if sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer); then
  # In some containers it is there and cannot watch the GPU.
  probe=$parts/probe sanitizer_problem=
  start 60 "$probe" "$sanitizer" --error-exitcode 1 "$folder/cuda_gpu_kernels_test" --gtest_color=no \
    --gtest_filter=Swiglu.HandWorkedRow || case $? in
      124 | 125 | 137) sanitizer_problem="one small test did not end in time" ;;
      *) sanitizer_problem=$(grep -m1 -iE 'not supported|error 999|unknown error|internal error|unable to' "$probe" | sed 's/^[= ]*//') ;;
    esac
fi
if [ -z "$sanitizer_problem" ]; then
  # Sizes that take too long are left out, and runs that only repeat others.
  small='*bf16*:*fp32*:*Match*fp16*-*1025x*:*300x*:*270x*:*Threads*:*SameBits*'
  for tool in memcheck racecheck initcheck synccheck; do
    TRIREME_TEST_SMALL=1 run "kernels at the shapes of models under $tool" 150 "$sanitizer" --tool $tool \
      --error-exitcode 1 "$folder/cuda_gpu_shapes_test" --gtest_color=no &
  done
  for tool in memcheck racecheck; do
    run "kernels under $tool" 150 "$sanitizer" --tool $tool --error-exitcode 1 "$folder/cuda_gpu_kernels_test" \
      --gtest_color=no "--gtest_filter=$small" &
  done
else
  note "NOT RUN" 0 "kernels under memcheck, racecheck, initcheck, synccheck: $sanitizer_problem" "$probe"
fi
wait
if [ -n "$(command -v mpirun)" ]; then
  e2e=$folder/e2e
  [ -d "$e2e" ] || e2e=$here/e2e
  run "two ranks through the host" 60 mpirun -np 2 "$folder/cuda_gpu_ranks_test" --gtest_color=no &
  run "grids of two ranks" 90 mpirun -np 2 "$folder/cuda_gpu_grid_test" --gtest_color=no &
  run "grids of four ranks" 90 mpirun -np 4 "$folder/cuda_gpu_grid_test" --gtest_color=no &
  run "the program" 150 bash "$e2e/gpu_test.sh" "$folder/trireme" mpirun &
  wait
  # One GPU is not enough for two ranks of NCCL, unless they are on two machines: so it is made to take them for two
  # (cuda/nccl/gpu_table.hpp), and uses sockets. Kernels of two processes that wait for one another take turns on the GPU.
  two_machines=(mpirun -np 2 env NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0
    NCCL_MNNVL_ENABLE=0 bash -c 'NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK exec "$0" "$@"')
  experiment "NCCL between two ranks of one GPU" 30 "${two_machines[@]}" "$folder/cuda_gpu_ranks_test" \
    --gtest_color=no "--gtest_filter=GpuNccl.*" &&
    experiment "grids of two ranks of one GPU, with NCCL" 60 "${two_machines[@]}" "$folder/cuda_gpu_grid_test" \
      --gtest_color=no "--gtest_filter=*RanksWithAGpuEach*:*MessagesOf*"
else
  note "NOT RUN" 0 "several ranks, and the program: there is no mpirun here"
fi

# Benchmarks have the GPU for themselves.
measure "training steps, without and with graphs" 90 steps.jsonl "$folder/step_gpu_bench"
measure "these steps beside their prediction" 10 steps-predicted.txt "$folder/step_predict" --compare "$folder/steps.jsonl"
measure "kernels" 60 kernels.txt "$folder/kernels_gpu_bench" --json "$folder/kernels.jsonl"
if [ -n "$(command -v mpirun)" ]; then
  gpus=$(nvidia-smi -L 2>/dev/null | wc -l) # a group of one rank copies, without NCCL
  [ "$gpus" -lt 2 ] || measure "collectives, NCCL, $gpus GPUs" 25 collectives.jsonl \
    mpirun -np "$gpus" "$folder/collectives_bench" --backend cuda --largest-mb 64
  measure "collectives, staged" 25 collectives-staged.jsonl \
    mpirun -np 2 "$folder/collectives_bench" --backend cuda --communicator staged --largest-mb 4
fi
# Compiling takes PyTorch the most of it: one model, in the time that is left. By hand bench/step/gpu.sh runs more.
steps=$folder/${peer[0]}
[ -x "$steps" ] || steps=$here/../${peer[0]}
MODELS=gpt2-1.2b STEPS=15 measure "training steps beside PyTorch's" 240 steps-peer.txt "$steps" "$folder"
echo
echo "$SECONDS s in all" >>"$results"
[ ! -s "$folder/steps-predicted.txt" ] || cat "$folder/steps-predicted.txt"
cat "$results"
kept=$here/../bench/results
[ ! -d "$kept" ] || echo "to keep this table: cp $results $kept/gpu-$(date -u +%F).txt"
! grep -qE '^(FAILED|TIMEOUT|NOT RUN)' "$results"
