# shellcheck shell=bash disable=SC2034  # its readers use the variables
# Sourced by the benchmarks that measure on this machine. Sets `root`, the repository, and `work`, a temporary folder that
# is removed at the end; TMPDIR says where.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d -p "${TMPDIR:-/tmp}" trireme-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ "$(id -u)" = 0 ]; then  # as in containers; Open MPI requires both variables
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# use_build FOLDER PROGRAM...: sets `build`, by default build/release; exits with 2 if it lacks one of the programs.
use_build() {
  local program
  build=$(realpath -m "${1:-$root/build/release}")
  for program in "${@:2}"; do
    [ -x "$build/$program" ] || { echo "$build/$program is missing: cmake --build --preset release" >&2; exit 2; }
  done
}

# median, least and greatest of a column of numbers
summary() {
  sort -g | awk '{ x[NR] = $1 } END { if (NR) printf "%.9g %.9g %.9g\n", (x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'
}
