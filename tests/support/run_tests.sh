# Sourced by the test commands.

# install_disassembler FOLDER: cuobjdump and nvdisasm, from NVIDIA's packages for pip, where nvcc is there without them. Goes
# on without where they cannot be had.
install_disassembler() {
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if [ ! -x "$nvcc" ] || command -v cuobjdump >/dev/null || [ -x "$(dirname "$nvcc")/cuobjdump" ] ||
    [ -x "$1/nvidia/cu13/bin/cuobjdump" ]; then return 0; fi
  echo "Installing cuobjdump and nvdisasm into $1"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$1" nvidia-cuda-cuobjdump==13.2.86 \
    nvidia-cuda-nvdisasm==13.2.86 </dev/null || echo "Going on without cuobjdump: machine code is not checked" >&2
}

# build_and_test FOLDER CMAKE_ARGUMENT... -- CTEST_ARGUMENT...
# Builds everything with warnings as errors, runs the tests, prints a summary and returns ctest's exit status.
build_and_test() {
  local folder=$1 cores status=0 built configure=()
  shift
  while [ "$1" != -- ]; do configure+=("$1"); shift; done
  shift
  cores=$(nproc)

  SECONDS=0
  cmake -S . -B "$folder" -G Ninja -D TRIREME_WARNINGS_AS_ERRORS=ON "${configure[@]}" </dev/null
  cmake --build "$folder" --parallel "$cores" </dev/null
  built=$SECONDS

  # Texts and vocabularies that the project may not carry with it: tests that need them are skipped without them.
  if [ -z "${TRIREME_TEST_DATA:-}" ] && [ -d ../shared/data ]; then
    TRIREME_TEST_DATA=$(cd ../shared/data && pwd)
    export TRIREME_TEST_DATA
  fi
  rm -f "$folder/junit.xml"
  # More than cores: many tests wait for signals, locks and limits of time.
  ctest --test-dir "$folder" --output-on-failure --no-tests=error --parallel $((cores + 2)) \
    --output-junit junit.xml "$@" </dev/null || status=$?

  echo
  echo "Trireme $(git rev-parse --short HEAD 2>/dev/null || echo "without git"), $cores cores," \
    "$(g++ -dumpfullversion 2>/dev/null | sed 's/^/g++ /'): built in $built s, tested in $((SECONDS - built)) s"
  summarize "$folder"
  return $status
}

# summarize FOLDER: what the last run of ctest in this build folder found, skipped tests with their reasons.
summarize() {
  local log=$1/Testing/Temporary/LastTest.log
  sed -n 's/.*<testcase name="\([^"]*\)".*status="\(fail\|notrun\)".*/  \2: \1/p' "$1/junit.xml" |
    sed 's/notrun:/skipped:/; s/fail:/FAILED:/'
  # The failed checks of each failed test, of GoogleTest or of a shell script, and the end of its output.
  awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3; checks = ""; lines = left = 0; inside = 0 }
       /^<end of output>$/ { inside = 0 }
       inside {
         if (/^\[  FAILED  \] .* ms\)$|: Failure$|^FAILED: /) left = 5
         if (left-- > 0) checks = checks "    " substr($0, 1, 300) "\n"
         last[lines++ % 40] = $0
       }
       /^Output:$/ { getline; inside = 1 }
       /^Test Failed\.$/ {
         if (checks != "") printf "  %s, failed checks:\n%s", name, substr(checks, 1, 4000)
         printf "  %s, end of its output:\n", name
         for (i = lines > 40 ? lines - 40 : 0; i < lines; ++i) print "    " substr(last[i % 40], 1, 300)
       }' "$log" | head -n 150 || true
  # GoogleTest prints "FILE:LINE: Skipped", the reason, and then the test's name.
  awk '/: Skipped$/ { getline; reason = $0 }
       /^\[  SKIPPED \] .* ms\)$/ { skipped[reason]++ }
       END { for (r in skipped) printf "  skipped in test programs, %d times: %s\n", skipped[r], r }' "$log"
  grep -m1 -o 'tests="[0-9]*"' "$1/junit.xml" | tr -dc 0-9
  echo " tests, $(grep -c 'status="fail"' "$1/junit.xml") failed"
}
