#!/bin/bash
# Registers, spills and static shared memory of every CUDA kernel, from the compiler's report; no GPU is needed. With 256
# threads a block, 64 registers a thread let eight warps of a multiprocessor's quarter run at once, 255 two.
# usage: bench/kernels/resources.sh [ARCHITECTURE...]   default: 80 90; prints a table in Markdown
# Exit status 1 where a kernel spills registers, but for the attention without tensor cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- 80 90
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

for architecture in "$@"; do
  for file in cuda/kernels/*.cu; do
    # The options of cuda/CMakeLists.txt.
    "$nvcc" -std=c++20 -O3 -arch="sm_$architecture" --expt-relaxed-constexpr --diag-suppress=554 -D FMT_USE_CONSTEXPR=1 \
      -I . -I cuda -Xptxas -v -cubin -o "$reports/cubin" "$file" 2>"$reports/$(basename "$file" .cu).$architecture" ||
      { cat "$reports/$(basename "$file" .cu).$architecture" >&2; exit 1; }
  done
done

echo "Commit $(git rev-parse --short HEAD), $("$nvcc" --version | sed -n 's/.*release \(.*\), V.*/nvcc \1/p')."
for architecture in "$@"; do
  echo
  echo "| sm_$architecture | registers | spilled bytes | static shared bytes |"
  echo "| --- | --- | --- | --- |"
  cat "$reports"/*."$architecture" | awk '
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
    /bytes spill stores/ { spilled = $5 + $9 }
    / Used [0-9]+ registers/ {
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
      print name "\t" $5 "\t" spilled "\t" shared
    }' | c++filt | sed 's/^void //; s/trireme::cuda::(anonymous namespace):://; s/trireme:://g; s/cuda:://g; s/([^\t]*\t/\t/' |
    sort -u | awk -F'\t' '{ print "| `" $1 "` | " $2 " | " $3 " | " $4 " |"; if ($3 > 0 && $1 !~ /^(attention|query_gradient|key_gradient)_kernel/) spills++ } END { exit spills > 0 }' ||
    status=1
done
exit ${status:-0}
