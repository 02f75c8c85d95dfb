#!/bin/bash
# Checks that the lints fire: a small correct tree passes, and each fault that is planted in it is found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

plant() { mkdir -p "$tree/$(dirname "$1")" && printf '%s\n' "${@:2}" >"$tree/$1"; }
fresh() {
  rm -rf "${tree:?}"/*
  plant src/base/error.hpp '#pragma once' '#include <fmt/format.h>'
  plant src/base/file.hpp '#pragma once' '#include <string>' 'std::string read_all(const std::string& path);  // std::map'
  plant src/base/file.cpp '#include "src/base/file.hpp"' 'int flush_all(int x) {' '  text = read_all("std::map") + x.own_text() + to_text(1);'
  plant src/tensor/shape.hpp '#pragma once' '#include "src/base/error.hpp"'
  plant src/backend/cpu/cpu_backend.hpp '#pragma once' '#include <cblas.h>'
  plant src/backend/kernels/rotary.hpp '#pragma once' '  virtual void rotate(Stream& stream, TensorView x) {'
  plant src/backend/cpu/rotary.cpp '  void rotate(Stream&, TensorView x) override {'
  plant cuda/kernels/rotary.cu '  void rotate(Stream& stream, TensorView x) override {'
  plant src/backend/make_backend.cpp '#include "src/backend/cpu/cpu_backend.hpp"'
  plant src/parallel/parameter.hpp '#pragma once'
  plant src/parallel/grid/process_grid.hpp '#pragma once' '#include "src/parallel/parameter.hpp"'
  plant mpi/environment.hpp '#pragma once' '#include <mpi.h>'
  plant src/app/main.cpp '#include "mpi/environment.hpp"'
  plant tests/base/error_test.cpp '#include "src/base/error.hpp"' '#include <mpi.h>' 'TEST_F(Error, Says) {}'
  plant src/base/units.hpp '#pragma once' '/// Bytes of a block, in terms' '/// Of the page.' 'int block;  ///< bytes'
  plant src/app/run_config/lr_options.cpp '#include "src/base/error.hpp"' 'options.add("lr,rate", &lr);'
  plant src/optim/sgd.cpp 'throw Error("<lr> {} is below 0, not <|endoftext|>, as under srun --mpi=pmix");  // --lr' "char c = '\"';"
  plant src/plan/drawing.cpp 'svg = "<g><title>--</title>";'
  plant README.md '# A tree' '[Units](docs/units.md#of-blocks)'
  plant docs/units.md '# Of blocks'
  plant trireme '#!/bin/bash' 'case "$*" in' '--help) printf "usage: x\n\n  train     train\n  corpus build  build\n" ;;' \
    '"corpus --help") echo "Usage: trireme corpus build|split [OPTION]..." ;;' \
    '"corpus split --help") printf "  --ways N\n            --wide tables\n" ;;' '*) printf "  --lr, --rate X   it [1]\n  --help  x\n" ;; esac'
  chmod +x "$tree/trireme"
  plant tests/e2e/lr_test.sh 'train --lr 1' 'check "two ways"'
  plant src/app/plan.cpp 'options.add("top", &top, "N",' '            "Layouts; give --lr, too.");' 'fail("--top: "' '     "give --lr");'
  plant tests/app/remedies_test.cpp '{"give --lr", "--top 1", "--top 1 --lr 1"},'
  plant tests/lint/remedies.txt '# Remedies' 'try a larger --lr | a slow machine'
  plant src/train/loop.cpp 'log::warn("{} is slow: try a larger <lr>", host);'
  plant tests/lint/options.txt '# Options' '--lr | rate | e2e/lr_test.sh, Error.Says, base/error_test.cpp:mpi.h' '--ways | parts | e2e/lr_test.sh:two ways'
}
# lint CHECK: runs it on the small tree.
lint() {
  local program=()
  [ "$1" != options ] || program=("$tree/trireme")
  "$here/$1.sh" "${program[@]}" "$tree" >"$tree/output"
}

fresh
for check in layers prose flags remedies links options; do
  lint $check || { echo "$check: a tree that is in order was refused:"; cat "$tree/output"; exit 1; }
done

missed=0
check=layers
# must_fail WHAT EXPECTED_WORDS FILE LINE...: of the check that $check names
must_fail() {
  local what=$1 words=$2
  fresh
  plant "${@:3}"
  if lint $check; then
    echo "not found: $what"
    missed=1
  elif ! grep -qF -- "$words" "$tree/output"; then
    echo "found for another reason: $what"
    cat "$tree/output"
    missed=1
  fi
}
must_fail "an arrow upwards" "does not look up to" src/base/log.cpp '#include "src/tensor/shape.hpp"'
must_fail "a sibling" "are siblings" src/parallel/data/bucket.cpp '#include "src/parallel/grid/process_grid.hpp"'
must_fail "an adapter that sees another" "stand apart" io/corpus/store.cpp '#include "mpi/environment.hpp"'
must_fail "the core that sees an adapter" "does not look up to" src/train/loop.cpp '#include "mpi/environment.hpp"'
must_fail "MPI in the core" "only mpi may include" src/comm/group.cpp '#include <mpi.h>'
must_fail "MPI in the composition root" "only mpi may include" src/app/main.cpp '#include <mpi.h>'
must_fail "CUDA in the core" "only cuda may include" src/backend/devices.cpp '#  include <cuda_runtime.h>'
must_fail "HDF5 outside io" "only io/h5 may include" src/checkpoint/store.cpp '#include <hdf5.h>'
must_fail "JSON outside io" "only io may include" src/app/options/options.cpp '#include <nlohmann/json.hpp>'
must_fail "Boost outside the command line" "only src/app may include" src/plan/options.cpp '#include <boost/any.hpp>'
must_fail "BLAS outside the CPU backend" "only src/backend/cpu" src/backend/gemm.cpp '#include <cblas.h>'
must_fail "the CPU backend's own headers outside" "is private to" src/train/x.cpp '#include "src/backend/cpu/cpu_backend.hpp"'
must_fail "a program that includes a test" "may not include" src/train/x.cpp '#include "tests/base/error_test.cpp"'
must_fail "a path that is not from the root" "is not a file here" src/base/check.cpp '#include "error.hpp"'
must_fail "our header in angle brackets" "write it in quotes" src/base/check.cpp '#include <src/base/error.hpp>'
must_fail "a folder without a level" "no place in the table" src/extra/x.cpp 'int x;'
must_fail "a function without its header" 'read_all is used without #include "src/base/file.hpp"' src/train/x.cpp \
  'int main() {' '  return io::read_all("x").size();'
must_fail "a local function of another source" 'flush_all is used without #include "src/base/file.cpp"' src/train/x.cpp '  x = flush_all(1);'
must_fail "a container without its header" 'std::vector is used without #include <vector>' src/train/x.cpp '#include "src/base/file.hpp"' \
  'std::vector<int> x;  // of std::string'
must_fail "a header without a guard" "no #pragma once" src/base/check.hpp 'int x();'
must_fail "a file that is too long" "600 is the limit" src/base/long.cpp $(seq 601)
must_fail "a kernel that the CPU backend lacks" "src/backend/cpu does not override the kernel rotate" src/backend/cpu/rotary.cpp 'int x;'
must_fail "a kernel that CUDA lacks" "cuda/kernels does not override the kernel rotate" cuda/kernels/rotary.cu 'int x;'
check=prose
for word in What Who Of Whether; do
  must_fail "a comment that begins with $word" "begin the comment with" src/base/x.hpp "/// $word is it."
done
must_fail "such a comment after a sentence" "begin the comment with" src/base/x.hpp '/// A sentence.' '/// Of it another.'
must_fail "such a comment of a member" "begin the comment with" src/base/x.hpp 'int x;  ///< Of the block'
for word in of what who whether; do
  must_fail "a comment after code that begins with $word" "begin the comment with" src/base/x.hpp "int x;  ///< $word the block"
  must_fail "such a comment after a command" "begin the comment with" tests/x.sh "f # $word the block"
done
must_fail "such a comment of a script" "begin the comment with" tests/x.sh '# Of it'
must_fail "a README that is too long" "150 is the limit" README.md $(seq 151)
check=flags
must_fail "a flag below app" "--lr is a flag" src/optim/sgd.cpp 'throw Error("--lr is below 0");'
must_fail "a flag after a character" "--lr is a flag" src/optim/sgd.cpp "put('\"') + \"--lr is below 0\";"
must_fail "a field without a flag" "<momentum> is not an option" src/optim/sgd.cpp 'throw Error("<momentum> is below 0");'
must_fail "a field in parts" "<lr_{}> is not an option" src/optim/sgd.cpp 'throw Error("<lr_{}> is below 0", unit);'
must_fail "a flag of app that is no option" "--momentum is not an option" src/app/run_config/lr_options.cpp 'options.add("lr", &lr);' \
  'fail("give --lr and --l- under srun --mpi=pmix, and --momentum");'
check=remedies
must_fail "a remedy that no test follows" "no test follows the remedy: {} is small. Try --lr {}" src/optim/sgd.cpp \
  'throw Error("{} is small. "' '            "Try <lr> {}");'
must_fail "a row without a message" "no message holds: try a larger --lr" src/train/loop.cpp 'log::warn("{} is slow", host);'
must_fail "a row whose remedy a test follows" "a test follows: give --lr" tests/lint/remedies.txt 'try a larger --lr | slow' 'give --lr | none'
must_fail "a row without a reason" "not \"message | reason\"" tests/lint/remedies.txt 'try a larger --lr'
check=links
must_fail "a link to no file" "no such file" README.md '[a](docs/lost.md)'
must_fail "a link to no heading" "no such heading" README.md '[a](docs/units.md#lost)'
check=options
rows=('--lr | rate | e2e/lr_test.sh' '--ways | parts | e2e/lr_test.sh:two ways')
must_fail "an option without a row" "--ways has no row" tests/lint/options.txt "${rows[0]}"
must_fail "a row without an option" "--rate: no command has it" tests/lint/options.txt "${rows[@]}" '--rate | rate | e2e/lr_test.sh:1'
must_fail "an option with two rows" "--lr has several rows" tests/lint/options.txt "${rows[@]}" "${rows[0]}"
must_fail "a row without a test" "is no row" tests/lint/options.txt "${rows[1]}" '--lr | rate'
must_fail "a test that does not exist" "there is no tests/e2e/lost_test.sh" tests/lint/options.txt "${rows[1]}" '--lr | rate | e2e/lost_test.sh'
must_fail "a test case that does not exist" "there is no test case Error.Sings" tests/lint/options.txt "${rows[1]}" '--lr | rate | Error.Sings'
must_fail "a test of something else" "does not hold 'One'" tests/lint/options.txt "${rows[1]}" '--lr | rate | e2e/lr_test.sh:One'
must_fail "a test of another option" "does not hold the option" tests/e2e/lr_test.sh 'train --lr-decay 1' 'check "two ways"'
exit $missed
