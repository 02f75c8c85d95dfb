#!/bin/bash
# Compiles every source by itself, as an installation does: tests/run.sh joins the sources of a target, so that one which lacks
# a header still compiles there.
# usage: tests/separate.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/packages.sh

install_packages "${build_packages[@]}" "${test_packages[@]}"
cmake -G Ninja -B build/separate -D CMAKE_BUILD_TYPE=Release -D TRIREME_OPTIMIZE=-O0 -D TRIREME_WARNINGS_AS_ERRORS=ON \
  -D TRIREME_CUDA_ARCHITECTURES=90 </dev/null
cmake --build build/separate --parallel "$(nproc)" -- -k 0 </dev/null
echo "all sources compile by themselves"
