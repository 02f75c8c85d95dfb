#!/bin/bash
# Packs the tests that need a GPU for a machine that cannot build: FOLDER then has the programs, their libraries, Open MPI's
# part for one machine, test data and scripts, and FOLDER.tar.xz is all of it. There: tar xJf FOLDER.tar.xz (or python3 -m
# tarfile -e), then FOLDER/gpu.sh.
# usage: tests/gpu.sh --pack FOLDER [BUILD]    BUILD: default build/release
# The build runs on any x86-64-v3 processor: cmake --preset release -D TRIREME_MARCH=x86-64-v3.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=(cuda_gpu_test cuda_gpu_kernels_test cuda_gpu_shapes_test cuda_gpu_training_test cuda_gpu_ranks_test cuda_gpu_grid_test
  kernels_gpu_bench step_gpu_bench step_predict collectives_bench trireme)

# libraries_of FILE...: what they need, except for what belongs to the system and to CUDA, which the other machine has.
libraries_of() {
  for file in "$@"; do ldd "$file"; done 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s|ld-linux[^/]*|libcuda|libcublas|libcublasLt|libnccl)\.so'
}

# pack_mpi FOLDER: Open MPI, with its plug-ins for processes of one machine. Prints the libraries that they need.
pack_mpi() {
  local to=$1 library plugins
  library=$(ldd "$build/libtrireme_program.so" | awk '/libmpi\.so/ { print $3 }')
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
  cp -L /usr/lib/*/pmix2/lib/pmix/*.so "$to/pmix" 2>/dev/null || true
  cp /usr/share/openmpi/help-*.txt "$to/share/openmpi" 2>/dev/null || true
  : >"$to/etc/openmpi-mca-params.conf"
  libraries_of "$to"/bin/* "$to"/plugins/*.so "$to"/pmix/*.so
}

folder=${1:?usage: tests/gpu.sh --pack FOLDER [BUILD]}
build=$(cd "${2:-$here/../build/release}" && pwd)
march=$(sed -n 's/^TRIREME_MARCH:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ "$march" != x86-64-v3 ] && [ "$march" != x86-64-v2 ] && [ "$march" != x86-64 ]; then
  echo "$build was built for the processor '$march' and may not run on another one: cmake --preset release" \
    "-D TRIREME_MARCH=x86-64-v3, build, and pack again" >&2
  exit 2
fi
if [ -e "$folder" ] && [ ! -e "$folder/gpu.sh" ]; then
  echo "$folder exists, and is no folder that this script packed: name a new one" >&2
  exit 2
fi
rm -rf "$folder"
mkdir -p "$folder/lib"
folder=$(cd "$folder" && pwd)
cp "${programs[@]/#/$build/}" "$build/libtrireme_program.so" "$folder" # the executable looks for the library beside itself
cp "$build/libtrireme_cuda.so" "$folder/lib"
{ libraries_of "${programs[@]/#/$build/}" "$build"/libtrireme_{program,cuda}.so && pack_mpi "$folder/mpi"; } |
  sort -u | while read -r library; do cp -L "$library" "$folder/lib"; done
find "$folder" -type f \( -name '*.so*' -o -perm -100 \) -print0 | xargs -0 strip --strip-unneeded
cp -r "$here"/{e2e,fixtures} "$here"/gpu{,_environment,_parts}.sh "$folder"
(cd "$here/.." && cp --parents bench/step/gpu.sh bench/peers/{gpt2,attention}_pytorch.py "$folder")
echo "trireme $("$build/trireme" info | sed -n 's/^trireme *//p'), -march=$march" >"$folder/build.txt"
# One window for all of it: the programs hold the same kernels.
tar -C "$(dirname "$folder")" --sort=name -cf - "$(basename "$folder")" | xz -T1 -6 --lzma2=preset=6,dict=96MiB >"$folder.tar.xz"
du -sh "$folder" "$folder.tar.xz"
