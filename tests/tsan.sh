#!/bin/bash
# The CUDA kernels on the host under ThreadSanitizer, every thread of a block a thread of its own: finds missing barriers
# and other races. In a build of its own; first kernels with one mistake each, which must be found, then the kernels' own
# tests in one type, without the largest sizes, since each takes some fifty times as long. A few minutes on one core.
# usage: tests/tsan.sh
# Exit status 1 where a mistake is not found, or where there is a race or a wrong result.
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/packages.sh

install_packages "${build_packages[@]}" "${test_packages[@]}"
# GCC 12 warns of overlaps in what this sanitizer inserts, where there are none.
cmake --preset tsan -D TRIREME_WARNINGS_AS_ERRORS=OFF -D TRIREME_BENCHMARKS=OFF </dev/null
cmake --build build/tsan --parallel "$(nproc)" --target kernels_canary kernels_test attention_kernels_test \
  flash_attention_kernels_test </dev/null

# All accesses to one address are reported, not the first alone: shared memory is at one address in all kernels.
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppress_equal_addresses=0:history_size=4:halt_on_error=1}
ctest --test-dir build/tsan --output-on-failure --no-tests=error -R '^kernels_canary'
# run PROGRAM FILTER
run() {
  local begin=$SECONDS
  "build/tsan/$1" --gtest_brief=1 --gtest_color=no --gtest_filter="$2"
  echo "$1: no races, $((SECONDS - begin)) s"
}
SECONDS=0
run kernels_test '*bf16*'
run attention_kernels_test '*fp32*-*1025x*:*300x*:*270x*'
run flash_attention_kernels_test '*bf16*'
echo "no races in the kernels; the tests ran for $SECONDS s"
