#!/bin/bash
# Exports a checkpoint for transformers and imports the result again, on one and two ranks, with the disk's own rates
# measured beside each. Prints a table: time, rate, share of the disk's rate, and the greatest memory of a rank. At the
# end the imported checkpoint is exported again: its tensors must be those of the first export.
#
# usage: bench/exchange/run.sh [BUILD_FOLDER]     default build/release
# environment: PRESET (gpt2-8.3b), DTYPE (bf16), FOLDER (where: a temporary folder), RANKS ("1 2"). The 8.3B model takes
# 67 GB there. Needs the Debian package time. Caches are dropped by name, so root is not needed.
set -euo pipefail

TMPDIR=${FOLDER:-${TMPDIR:-/tmp}} source "$(dirname "$0")/../common.sh"
use_build "${1:-}" trireme formula_checkpoint
preset=${PRESET:-gpt2-8.3b} dtype=${DTYPE:-bf16}
block=$(mktemp -p /dev/shm)
trap 'rm -rf "$work" "$block"' EXIT
cd "$work"
block_bytes=$((30 << 25))
head -c $block_bytes /dev/urandom >"$block"  # random, so that no disk compresses it

on() { mpirun --bind-to none --oversubscribe -np "$@" >out 2>log || { cat log >&2; return 1; }; }
drop() { find "$1" -type f -exec dd if={} iflag=nocache count=0 status=none \; ; }
bytes() { find "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }'; }
gb_per_s() { awk -v ns="$2" -v bytes="$1" 'BEGIN { printf "%.3f", bytes / ns }'; }

# disk_rates FOLDER: rates at which one process reads its files and writes, past the cache, 8 GB each; GB/s, to `read` and `write`
disk_rates() {
  local begin wanted=8000000000 done=0 file
  begin=$(date +%s%N)
  for file in $(find "$1" -type f -size +100M | sort); do
    [ $done -lt $wanted ] || break
    done=$((done + $(dd if="$file" of=/dev/null bs=32M count=250 iflag=direct 2>&1 | sed -n 's/^\([0-9]*\) bytes.*/\1/p')))
  done
  read=$(gb_per_s $done $(($(date +%s%N) - begin)))
  begin=$(date +%s%N)
  for ((i = 0; i < 8; ++i)); do
    dd if="$block" of=written bs=32M seek=$((30 * i)) conv=notrunc,fdatasync oflag=direct status=none 2>/dev/null
  done
  write=$(gb_per_s $((8 * block_bytes)) $(($(date +%s%N) - begin)))
  rm -f written
}

# measure NAME INPUT OUTPUT RANKS ARGUMENT...: one row. The limit is the time to read the input, and then write the output.
# A share above 100 % means that both went on at once.
measure() {
  local name=$1 input=$2 output=$3 ranks=$4 begin ns before
  rm -rf "$output"
  disk_rates "$input"
  before="$read $write"
  drop "$input"
  begin=$(date +%s%N)
  on "$ranks" time -o memory -a -f %M "$build/trireme" checkpoint "${@:5}"
  ns=$(($(date +%s%N) - begin))
  disk_rates "$input"
  awk -v name="$name" -v ranks="$ranks" -v ns="$ns" -v in_bytes="$(bytes "$input")" -v out_bytes="$(bytes "$output")" \
    -v before="$before" -v after="$read $write" -v kb="$(sort -n memory | tail -1)" 'BEGIN {
      split(before, a); split(after, b)
      r = (a[1] + b[1]) / 2; w = (a[2] + b[2]) / 2
      s = ns / 1e9; read = in_bytes / 1e9; written = out_bytes / 1e9; limit = read / r + written / w
      printf "| %s | %d | %.1f | %.1f | %.1f | %.2f | %.2f | %.1f | %.0f %% | %.0f |\n", name, ranks, read, written, s, r, w, limit, 100 * limit / s, kb / 1e3
    }'
  rm memory
}
digests() { for file in "$1"/*.safetensors; do head -c 1000000 "$file" | grep -a -o -m 1 '"trireme_digest":"[0-9a-f]*"'; done; }

on 2 "$build/formula_checkpoint" "$preset" made
echo "$preset in $dtype; $(nproc) cores, $(awk '/MemTotal/ { printf "%.0f GB", $2 / 1e6 }' /proc/meminfo) of memory"
echo
echo "| command | ranks | GB read | GB written | s | disk reads, GB/s | disk writes, GB/s | limit, s | share | MB a rank |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
for ranks in ${RANKS:-1 2}; do
  measure export made model "$ranks" export --load made --output model --dtype "$dtype"
done
rm -rf made
for ranks in ${RANKS:-1 2}; do
  measure import model imported "$ranks" import --input model --output imported --no-tokenizer
done
on 2 "$build/trireme" checkpoint export --load imported --output again --dtype "$dtype"
echo
if [ "$(digests model)" = "$(digests again)" ] && [ -n "$(digests model)" ]; then
  echo "The imported checkpoint, exported again, has the tensors of the first export."
else
  echo "FAILED: the tensors of the second export differ from those of the first."
  exit 1
fi
