#!/bin/bash
# The tests that need a GPU. Builds nothing: runs the programs of a build folder, or of a folder that --pack made there, on
# a machine with a GPU, its driver and the CUDA libraries (cuBLASLt, NCCL), and no development packages.
# usage: tests/gpu.sh [FOLDER]           the programs of FOLDER; default build/release
#        tests/gpu.sh --pack FOLDER      from build/release: FOLDER then has the programs, their libraries and this script
# Where the processors differ, build with -D TRIREME_MARCH=x86-64-v3.
# Exit status 1 where a test failed or was not run. The table of results is printed last, and is in FOLDER/gpu-results.txt.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(cuda_gpu_test cuda_gpu_ranks_test)

if [ "${1:-}" = --pack ]; then
  set -e
  folder=${2:?usage: tests/gpu.sh --pack FOLDER}
  build=$here/../build/release
  mkdir -p "$folder/lib"
  for program in "${programs[@]}"; do cp "$build/$program" "$folder"; done
  # All but what belongs to the system and to CUDA, which the machine with the GPU has in versions that fit it.
  for program in "${programs[@]}"; do ldd "$folder/$program"; done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^/]*|libcublas|libcublasLt|libnccl)\.so' |
    while read -r library; do cp -L "$library" "$folder/lib"; done
  cp "$here/gpu.sh" "$folder"
  du -sh "$folder"
  exit
fi

if [ $# -gt 0 ]; then folder=$1; elif [ -x "$here/${programs[0]}" ]; then folder=$here; else folder=$here/../build/release; fi
folder=$(cd "$folder" && pwd) || exit 1

# CUDA's libraries: the toolkit's, or those of Python's packages.
wheels=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
for place in "$folder/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" ${wheels:+"$wheels"/*/lib}; do
  [ -d "$place" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
done
export LD_LIBRARY_PATH TRIREME_REQUIRE_GPU=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

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
  printf '%-8s %4d s  %s: %s tests passed, %s failed\n' "$outcome" "$SECONDS" "$name" "$(grep -c '^\[       OK' "$log")" \
    "$(grep -c '^\[  FAILED  \].*ms)$' "$log")" >>"$results"
}
run "one GPU, one rank" "$folder/cuda_gpu_test" --gtest_color=no
if command -v mpirun >/dev/null; then
  run "one GPU, two ranks through the host" mpirun -np 2 "$folder/cuda_gpu_ranks_test" --gtest_color=no
else
  echo "NOT RUN         several ranks: there is no mpirun here" >>"$results"
  status=1
fi
echo
cat "$results"
exit $status
