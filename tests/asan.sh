#!/bin/bash
# The CPU suite under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer, in a build of its own.
# usage: tests/asan.sh [ARGUMENT_OF_CTEST...]    without arguments: all tests but those with the labels slow or lint
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/packages.sh
source tests/support/run_tests.sh

install_packages "${build_packages[@]}" "${test_packages[@]}"
[ $# -gt 0 ] || set -- -LE 'slow|lint'

# Not detect_stack_use_after_return: GCC 12 aligns the frames it moves to the heap to 32 bytes, and its own AVX-512 code in
# them needs 64.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=0:check_initialization_order=1:handle_sigbus=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0}
build_and_test build/asan --preset asan -- "$@"
