#!/bin/bash
# `corpus build` from a disk whose rate is limited, with nothing of the text in memory, on several ranks of one thread. Prints a
# table for bench/results: the rates, by time, of the disk (by dd), of the build, and of one with the text in memory right after it. The
# share is the build's rate of the lesser of the two others. All include the start. Needs root, and a control group of block devices.
# usage: bench/tokenizer/disk.sh ENCODER_JSON VOCAB_BPE TEXT...
# Environment: BUILD (default build/release, with trireme), LIMITS (MB/s, default "100 200 400 none"), RANKS (default "1 2"),
# MB (default 1000: the texts are repeated up to this size), TMPDIR (on the disk; default /tmp)
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# //p' "$0"; exit 2; }
source "$(dirname "$0")/../common.sh"
use_build "${BUILD:-}" trireme
export TRIREME_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1
vocabulary=(--tokenizer gpt2 --vocab-file "$1" --merge-file "$2")
shift 2
text=$work/text.txt
: >"$text"
until [ "$(stat -c %s "$text")" -ge $((${MB:-1000} * 1000000)) ]; do cat "$@" >>"$text"; done
bytes=$(stat -c %s "$text")
sync "$text"

# A partition's limit is that of its disk.
device=$(stat -c '%Hd:%Ld' "$text")
[ ! -e "/sys/dev/block/$device/partition" ] || device=$(cat "/sys/dev/block/$device/../dev")
if [ -d /sys/fs/cgroup/blkio ]; then
  group=/sys/fs/cgroup/blkio/trireme-disk-$$
else
  group=/sys/fs/cgroup/trireme-disk-$$
fi
mkdir "$group"
trap 'rmdir "$group"; rm -rf "$work"' EXIT

limit() { # MB/s, or none
  local rate=0
  [ "$1" = none ] || rate=$(($1 * 1000000))
  if [ -e "$group/blkio.throttle.read_bps_device" ]; then
    echo "$device $rate" >"$group/blkio.throttle.read_bps_device"
  else
    [ $rate -gt 0 ] || rate=max
    echo "$device rbps=$rate" >"$group/io.max"
  fi
}

# Runs a command in the group. Sets `seconds`.
timed() {
  local begin=$EPOCHREALTIME
  bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  seconds=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
}
forget_text() { dd if="$text" iflag=nocache count=0 2>/dev/null; }
timed_build() { # RANKS
  local run=()
  [ "$1" = 1 ] || run=(mpirun -n "$1" --bind-to none)
  rm -rf "$work"/corpus.h5*
  timed "${run[@]}" "$build/trireme" corpus build --input "$text" --output "$work/corpus.h5" "${vocabulary[@]}"
}

echo "| limit, MB/s | disk | ranks | build | build in memory | share |"
echo "| --- | --- | --- | --- | --- | --- |"
for rate in ${LIMITS:-100 200 400 none}; do
  limit "$rate"
  forget_text
  timed dd if="$text" of=/dev/null bs=4M
  disk=$seconds
  for ranks in ${RANKS:-1 2}; do
    forget_text
    timed_build "$ranks"
    cold=$seconds
    timed_build "$ranks"
    awk -v rate="$rate" -v bytes="$bytes" -v disk="$disk" -v ranks="$ranks" -v cold="$cold" -v warm="$seconds" 'BEGIN {
      least = disk > warm ? disk : warm
      mb = bytes / 1e6
      printf "| %s | %.0f | %d | %.0f | %.0f | %.2f |\n", rate, mb / disk, ranks, mb / cold, mb / warm, least / cold
    }'
  done
done
