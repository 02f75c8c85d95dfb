#!/bin/bash
# Counts messages, bytes, connections, processor time and memory of starting, saving and loading, by the number of ranks.
# They do not depend on the machine's load. A model of 24 narrow layers on data ranks alone, no iteration.
# Prints a table for bench/results.
#
# usage: bench/startup/run.sh [RANKS...]         default 1 2 4 8 16 32
# environment: BUILD (default build/release)
set -euo pipefail

source "$(dirname "$0")/../common.sh"
use_build "${BUILD:-}" trireme
trireme=$build/trireme
ranks=("$@")
[ $# -gt 0 ] || ranks=(1 2 4 8 16 32)
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export TRIREME_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
mpicc -O1 -shared -fPIC -o "$work/count.so" "$root/bench/startup/mpi_count.c"
cd "$work"
for i in $(seq 2000); do echo "{\"text\": \"the quick brown fox number $i jumps over the lazy dog\"}"; done >text.jsonl
"$trireme" corpus build --input text.jsonl --output corpus.h5 --tokenizer bytes --append-eod 2>log
export MPI_COUNT=$work/counts MPI_COUNT_LABEL
for n in "${ranks[@]}"; do
  for MPI_COUNT_LABEL in start save load; do
    options=()
    [ $MPI_COUNT_LABEL = start ] || options=("--$MPI_COUNT_LABEL" saved)
    mpirun -np "$n" -x LD_PRELOAD="$work/count.so" -x MPI_COUNT -x MPI_COUNT_LABEL "$trireme" train \
      --data-path corpus.h5 --split 900,50,50 --num-layers 24 --hidden-size 16 --num-attention-heads 4 --seq-length 16 \
      --lr 0.001 --global-batch-size "$n" --micro-batch-size 1 --train-iters 0 "${options[@]}" >log 2>&1 ||
      { cat log >&2; exit 1; }
  done
  rm -rf saved
done
echo "| phase | ranks | messages, most of a rank | of all | bytes, most of a rank | of all | peers | groups | processor ms | memory KiB | most |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
sort -k1,1 -k2,2n "$MPI_COUNT" | sed 's/ / | /g; s/^/| /; s/$/ |/'
