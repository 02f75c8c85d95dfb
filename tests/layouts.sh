#!/bin/bash
# Trains a small model in every layout of tests/layouts/layouts.txt, twice, on 1 to 16 ranks, and compares losses and
# gradient norms with one rank's (fp64: to 1e-10) and the two runs bit by bit. Prints the table, writes it as Markdown,
# and fails where a row does. The ranks may be more than the cores.
# usage: tests/layouts.sh [--quick | --random COUNT SEED] [LAYOUT_TABLE [MPIEXEC [OUTPUT.md]]]
# --quick: the rows with the tag "quick", for four updates: the second reads updated weights, the third the moments too.
# --random: COUNT rows of tests/layouts/random_rows.sh instead.
set -uo pipefail
tag=()
here=$(dirname "$(realpath "$0")")
folder=$here/layouts
if [ "${1-}" = --quick ]; then
  tag=(quick 4)
  shift
elif [ "${1-}" = --random ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cp "$here/layouts/base.ini" "$folder"
  "$here/layouts/random_rows.sh" "$2" "$3" >"$folder/layouts.txt" || exit 2
  shift 3
fi
program=${1:-$here/../build/release/layout_table}
mpiexec=${2:-mpirun}
output=${3:-layouts.md}
[ -x "$program" ] || { echo "No program at $program: build the target layout_table, or name it."; exit 2; }
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export TRIREME_THREADS=1

tee "$output" <<'END'
| ranks | options of `trireme train` | type | loss off by | norm off by | same bits | s | |
| ---: | --- | --- | ---: | ---: | --- | ---: | --- |
END
table=$folder/layouts.txt
failed=0
for ranks in $(grep -E "^[0-9]+ .*${tag[0]-}" "$table" | cut -d' ' -f1 | sort -nu); do
  timeout -k 10 3600 "$mpiexec" -n "$ranks" "$program" "$folder" "$output" "${tag[@]}" || failed=1
done
rows=$(grep -c '^| *[0-9]' "$output")
passed=$(grep -c '| PASS |$' "$output")
echo
echo "$passed of $rows layouts pass; the table is in $output"
[ "$failed" -eq 0 ] && [ "$rows" -gt 0 ] && [ "$passed" -eq "$rows" ]
