#!/bin/bash
# Installs what is missing, builds with warnings as errors, runs the tests and prints a summary.
# usage: tests/run.sh [ARGUMENT_OF_CTEST...]    without arguments: all tests but those with the label "slow"
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/packages.sh
source tests/support/run_tests.sh

install_packages "${build_packages[@]}" "${test_packages[@]}"
install_disassembler build/test/tools
[ $# -gt 0 ] || set -- -LE slow
# With less optimisation the program compiles a third faster; its warnings about uninitialised values are wrong there.
build_and_test build/test -D CMAKE_BUILD_TYPE=Release -D TRIREME_OPTIMIZE="-O1 -Wno-maybe-uninitialized" -D TRIREME_CUDA_ARCHITECTURES=90 \
  -D CMAKE_UNITY_BUILD=ON -- "$@"
