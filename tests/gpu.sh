#!/bin/bash
# The tests that need a GPU. Builds nothing: runs the programs of a build folder, or of a folder that --pack made there, on
# a machine with a GPU, its driver and the CUDA libraries (cuBLASLt, NCCL), and neither development packages nor MPI.
# usage: tests/gpu.sh [FOLDER]           the programs of FOLDER; default build/release
#        tests/gpu.sh --pack FOLDER      from build/release: FOLDER then has the programs, their libraries, Open MPI's part
#                                        for one machine, test data, and this script
# Where the processors differ, build with -D TRIREME_MARCH=x86-64-v3.
# Exit status 1 where a test failed or was not run. The table of results is printed last, and is in FOLDER/gpu-results.txt.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The benchmark is left out where there is none.
programs=(cuda_gpu_test cuda_gpu_kernels_test cuda_gpu_shapes_test cuda_gpu_training_test cuda_gpu_ranks_test cuda_gpu_grid_test trireme)
# Packed for what is run by hand: bench/step/gpu.sh
benchmarks=(bench/step/gpu.sh bench/peers/gpt2_pytorch.py)

# libraries_of FILE...: what they need, but for what belongs to the system and to CUDA: the machine with the GPU has its own.
libraries_of() {
  for file in "$@"; do ldd "$file"; done 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|ld-linux[^/]*|libcuda|libcublas|libcublasLt|libnccl)\.so'
}

# Open MPI, with its plug-ins for processes of one machine.
pack_mpi() {
  local to=$1 library plugins
  library=$(ldd "$folder/trireme" | awk '/libmpi\.so/ { print $3 }')
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
  build=$here/../build/release
  mkdir -p "$folder/lib"
  folder=$(cd "$folder" && pwd)
  for program in "${programs[@]}"; do cp "$build/$program" "$folder"; done
  for bench in collectives_bench kernels_gpu_bench; do [ ! -x "$build/$bench" ] || cp "$build/$bench" "$folder"; done
  cp "$build"/libtrireme_cuda.so "$folder/lib"
  { libraries_of "$folder"/{trireme,cuda_gpu_ranks_test} "$build/libtrireme_cuda.so"; pack_mpi "$folder/mpi"; } | sort -u |
    while read -r library; do cp -L "$library" "$folder/lib"; done
  cp -r "$here/e2e" "$here/fixtures" "$here/gpu.sh" "$here/gpu_environment.sh" "$folder"
  (cd "$here/.." && cp --parents "${benchmarks[@]}" "$folder")
  du -sh "$folder"
  exit
fi

if [ $# -gt 0 ]; then folder=$1; elif [ -x "$here/${programs[0]}" ]; then folder=$here; else folder=$here/../build/release; fi
folder=$(cd "$folder" && pwd) || exit 1

source "$here/gpu_environment.sh"
export TRIREME_REQUIRE_GPU=1
if [ -d "$folder/fixtures" ]; then export TRIREME_FIXTURES=$folder/fixtures; fi

status=0
results=$folder/gpu-results.txt
log=$(mktemp)
trap 'rm -f "$log"' EXIT
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | tee "$results"
# run NAME COMMAND...
run() {
  local name=$1 outcome=passed
  shift
  SECONDS=0
  "$@" 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || { outcome=FAILED; status=1; }
  printf '%-8s %4d s  %s: %s tests passed, %s failed\n' "$outcome" "$SECONDS" "$name" \
    "$(grep -cE '^(\[       OK|passed: )' "$log")" "$(grep -cE '^(\[  FAILED  \].*ms\)$|FAILED: )' "$log")" >>"$results"
}
run "runtime, products and NCCL, one rank" "$folder/cuda_gpu_test" --gtest_color=no
run "kernels" "$folder/cuda_gpu_kernels_test" --gtest_color=no
run "kernels at the shapes of models" "$folder/cuda_gpu_shapes_test" --gtest_color=no
if sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer); then
  for tool in memcheck racecheck initcheck synccheck; do
    run "kernels under $tool" env TRIREME_TEST_SMALL=1 "$sanitizer" --tool $tool --error-exitcode 1 \
      "$folder/cuda_gpu_shapes_test" --gtest_color=no
  done
else
  echo "NOT RUN         kernels under memcheck, racecheck, initcheck, synccheck: there is no compute-sanitizer here" >>"$results"
fi
if [ -x "$folder/kernels_gpu_bench" ]; then
  if "$folder/kernels_gpu_bench" --json "$folder/kernels.jsonl" | tee "$folder/kernels.txt"; then
    echo "measured         kernels: see kernels.txt, kernels.jsonl" >>"$results"
  else
    echo "FAILED           kernels_gpu_bench" >>"$results"
    status=1
  fi
fi
run "training, one rank" "$folder/cuda_gpu_training_test" --gtest_color=no
if command -v mpirun >/dev/null; then
  run "two ranks through the host" mpirun -np 2 "$folder/cuda_gpu_ranks_test" --gtest_color=no
  run "grids of two ranks" mpirun -np 2 "$folder/cuda_gpu_grid_test" --gtest_color=no
  run "grids of four ranks" mpirun -np 4 "$folder/cuda_gpu_grid_test" --gtest_color=no
  e2e=$folder/e2e
  [ -d "$e2e" ] || e2e=$here/e2e
  run "the program" bash "$e2e/gpu_test.sh" "$folder/trireme" mpirun
  if [ -x "$folder/collectives_bench" ]; then
    mpirun -np 1 "$folder/collectives_bench" --backend cuda --largest-mb 64 >"$folder/collectives.jsonl"
    mpirun -np 2 "$folder/collectives_bench" --backend cuda --communicator staged --largest-mb 64 >>"$folder/collectives.jsonl"
    echo "measured         collectives: see collectives.jsonl" >>"$results"
  fi
else
  echo "NOT RUN         several ranks, and the program: there is no mpirun here" >>"$results"
  status=1
fi
echo
cat "$results"
exit $status
