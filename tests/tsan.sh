#!/bin/bash
# The CUDA kernels on the host under ThreadSanitizer, every thread of a block a thread of its own: finds missing barriers
# and other races. In a build of its own; runs some tests of each kernel, since each takes some fifty times as long.
# usage: tests/tsan.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/packages.sh

install_packages "${build_packages[@]}" "${test_packages[@]}"
cmake --preset tsan -D TRIREME_WARNINGS_AS_ERRORS=ON -D TRIREME_BENCHMARKS=OFF </dev/null
cmake --build build/tsan --parallel "$(nproc)" --target kernels_canary kernels_test attention_kernels_test \
  flash_attention_kernels_test </dev/null

# All accesses to one address are reported, not the first alone: shared memory is at one address in all kernels.
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppress_equal_addresses=0:history_size=4:halt_on_error=1}
ctest --test-dir build/tsan --output-on-failure --no-tests=error -R '^kernels_canary'
SECONDS=0
build/tsan/kernels_test --gtest_brief=1 --gtest_filter='*bf16*'
build/tsan/attention_kernels_test --gtest_brief=1 --gtest_filter='*AttentionCases*fp32_33x*:*AttentionCases*fp32_65x*'
build/tsan/flash_attention_kernels_test --gtest_brief=1 --gtest_filter='*bf16_33x*:*bf16_5x*'
echo "no races in the kernels; the tests ran for $SECONDS s"
