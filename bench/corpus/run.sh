#!/bin/bash
# Times the stages from raw text to a corpus on this machine. Makes English-like documents with duplicates, and trains a
# tokenizer on the first 50 MB of them or less. Then cleans, builds, verifies, inspects, splits, merges and counts overlaps,
# on one rank and on two, and compares their results. Prints a table for bench/results: each stage's rate, alone and as a
# multiple of the disk's, and the memory of its largest rank; then the time of 174 GB on a cluster.
# The stages whose memory must not grow with the text first process a quarter of it: exit code 1 if the full text takes
# more anonymous memory (the system can reclaim pages of files at any time; they are printed separately).
#
# usage: bench/corpus/run.sh [MEGABYTES]         default 4000; needs five times as much of the disk
# environment: BUILD (default build/release, with trireme and make_documents), TMPDIR (the disk that is used and
# measured; default /tmp), NODES and CORES of the cluster (default 8 of 64)
set -euo pipefail
export LC_ALL=C

source "$(dirname "$0")/../common.sh"
megabytes=${1:-4000}
[[ $megabytes =~ ^[1-9][0-9]*$ ]] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
use_build "${BUILD:-}" trireme make_documents
trireme=$build/trireme
export OMPI_MCA_rmaps_base_oversubscribe=1
cd "$work"
cores=$(nproc)
half=$((cores > 1 ? cores / 2 : 1))
sample_bytes=$((megabytes < 200 ? megabytes * 250000 : 50000000))  # the same for both sizes
declare -A seconds anonymous

size_of() { cat "$@" | wc -c; }
# calculate EXPRESSION FORMAT
calculate() { awk "BEGIN { printf \"${2:-%.1f}\", $1 }"; }

# Sequential rates of the disk, in MB/s: dd's last words are "..., 1.2 s, 3.4 GB/s".
disk() {
  dd "$@" bs=4M 2>&1 | awk '/copied/ { for (i = 1; i <= NF; ++i) if ($i == "s,") printf "%.0f", $1 / 1e6 / $(i - 1) }'
}
blocks=$((megabytes < 4000 ? (megabytes + 3) / 4 : 1000))
write_rate=$(disk if=/dev/zero of=disk count=$blocks conv=fsync)
read_rate=$(disk if=disk of=/dev/null iflag=direct)
rm disk
[ -n "$write_rate" ] && [ -n "$read_rate" ] || { echo "cannot measure the disk of $work with dd" >&2; exit 1; }

# stage NAME BYTES RANKS THREADS ARGUMENT...: runs trireme and prints a row of the table. Its output is in the files out and err.
stage() {
  local name=$1 bytes=$2 ranks=$3 threads=$4 begin run=()
  shift 4
  rm -f memory
  [ "$ranks" = 1 ] || run=(mpirun -n "$ranks")
  begin=$EPOCHREALTIME
  TRIREME_THREADS=$threads "${run[@]}" bash "$root/bench/corpus/measure.sh" "$work/memory" "$trireme" "$@" >out 2>err ||
    { echo "failed: trireme $*" >&2; cat err >&2; exit 1; }
  seconds[$name,$ranks,$threads]=$(calculate "$EPOCHREALTIME - $begin" %.3f)
  # shellcheck disable=SC2046  # three words
  set -- $(awk '{ for (i = 1; i <= 3; ++i) if ($i > most[i]) most[i] = $i } END { for (i = 1; i <= 3; ++i) printf "%.0f ", most[i] / 1024 }' memory)
  anonymous[$name,$ranks,$threads]=$2
  awk -v name="$name" -v where="$ranks x $threads" -v bytes="$bytes" -v s="${seconds[$name,$ranks,$threads]}" \
    -v disk="$read_rate" -v all="$1" -v anonymous="$2" -v files="$3" 'BEGIN {
      rate = bytes / 1e6 / s
      printf "| %s | %s | %.0f | %.2f | %.1f | %.3f | %d | %d | %d |\n", name, where, bytes / 1e6, s, rate, rate / disk,
             all, anonymous, files }'
}

# same FILE OTHER: must hold the same bytes; the other is then removed.
same() {
  cmp "$1" "$2" || { echo "$1 and $2 differ" >&2; exit 1; }
  rm "$2"
}

# pipeline BYTES RANKSxTHREADS...: all stages on a text of this size, each on every one of these layouts.
pipeline() {
  local bytes=$1 layout ranks threads first=
  shift
  "$build/make_documents" "$bytes" >text.jsonl
  documents=$(wc -l <text.jsonl)
  head -c "$sample_bytes" text.jsonl | sed '$d' >sample.jsonl
  bytes=$(size_of text.jsonl)
  stage "tokenizer train" "$(size_of sample.jsonl)" 1 "$cores" tokenizer train --input sample.jsonl --output bpe --vocab-size 32000
  local bpe=(--tokenizer gpt2 --vocab-file bpe/vocab.json --merge-file bpe/merges.txt)
  for layout in "$@"; do
    ranks=${layout%x*} threads=${layout#*x}
    stage clean "$bytes" "$ranks" "$threads" corpus clean --input text.jsonl --output clean$first.jsonl "${bpe[@]}"
    [ -z "$first" ] || same clean.jsonl clean$first.jsonl
    first=-again
  done
  rm text.jsonl
  bytes=$(size_of clean.jsonl)
  built_bytes=$bytes
  kept=$(wc -l <clean.jsonl)
  first=
  for layout in "$@"; do
    ranks=${layout%x*} threads=${layout#*x}
    stage build "$bytes" "$ranks" "$threads" corpus build --input clean.jsonl --output corpus$first.h5 "${bpe[@]}" --append-eod
    [ -n "$first" ] || grep -o '[0-9.]* bytes/token.*' err >build.log
    [ -z "$first" ] || same corpus.h5 corpus$first.h5
    first=-again
    stage verify "$(size_of corpus.h5)" "$ranks" "$threads" corpus verify corpus.h5
  done
  corpus_bytes=$(size_of corpus.h5)
  stage inspect "$corpus_bytes" 1 1 corpus inspect corpus.h5
  stage split "$corpus_bytes" 1 1 corpus split corpus.h5 --split 80,10,10 --output-prefix part
  stage merge "$corpus_bytes" 1 1 corpus merge part_train.h5 part_valid.h5 part_test.h5 --output merged.h5
  same corpus.h5 merged.h5
  rm part_*.h5 corpus.h5
  tail -n 300 clean.jsonl >test.jsonl
  for layout in "$@"; do
    ranks=${layout%x*} threads=${layout#*x}
    stage overlap "$bytes" "$ranks" "$threads" corpus overlap --corpus clean.jsonl --test test.jsonl
  done
  rm clean.jsonl
}

echo "$(date -u +%F), $("$trireme" info | sed -n 1p), $cores cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "load $(cut -d' ' -f1 /proc/loadavg) at the start; disk: $read_rate MB/s read (direct), $write_rate MB/s written (with fsync), 4 MiB at a time"
echo "rates are of the input, which is in the page cache; memory in MiB of the largest rank: all, anonymous, pages of files"
echo
echo "| stage | ranks x threads | MB | s | MB/s | of the disk's rate | memory | anonymous | files |"
echo "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
pipeline $((megabytes * 1000000 / 4)) "1x$cores" "2x$half" >quarter.md
declare -A quarter
for key in "${!anonymous[@]}"; do quarter[$key]=${anonymous[$key]}; done
quarter_documents=$documents
layouts=("1x1" "1x$cores" "2x$half")
[ "$cores" = 1 ] && layouts=("1x1" "2x1")
pipeline $((megabytes * 1000000)) "${layouts[@]}"
echo
echo "a quarter of it:"
echo
sed '1i| stage | ranks x threads | MB | s | MB/s | of the disk'"'"'s rate | memory | anonymous | files |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |' quarter.md
echo
echo "$documents documents, $kept after cleaning; $(cat build.log)"

# Memory that must not grow with the text; that of cleaning goes by the number of documents.
grown=0
for key in "${!quarter[@]}"; do
  before=${quarter[$key]} after=${anonymous[$key]}
  if [[ $key == clean,* ]]; then
    more=$(((after - before) * 1048576 / (documents - quarter_documents)))
    echo "clean on ${key#*,} (ranks, threads): $more more bytes of anonymous memory per document and rank for the full text than for a quarter"
  elif ((after > before + before / 10 + 16)); then
    echo "GROWN: ${key%%,*} on ${key#*,} (ranks, threads) took $before MiB of anonymous memory for a quarter of the text, $after for all of it"
    grown=1
  fi
done
[ $grown = 1 ] || echo "no other stage takes more anonymous memory for the full text than for a quarter (by more than a tenth and 16 MiB)"

# The projection.
nodes=${NODES:-8} node_cores=${CORES:-64}
join_s=$(sed -n 's/.*joining \([0-9.]*\) s.*/\1/p' build.log)
awk -v bytes="$built_bytes" -v corpus="$corpus_bytes" -v one="${seconds[build,1,1]}" -v two="${seconds[build,2,$half]}" -v join="$join_s" \
  -v clean_one="${seconds[clean,1,1]}" -v text="$((megabytes * 1000000))" -v nodes="$nodes" -v cores="$node_cores" \
  -v used="$((2 * half))" 'BEGIN {
    total = 174e9
    ranks = nodes * cores
    efficiency = one / two / used
    tokenizing = total / (bytes / (one - join) * ranks * efficiency)
    joining = join * total / bytes / ranks / efficiency
    printf "\nProjection, not measured: 174 GB on %d nodes of %d such cores, a rank a core. Tokenizing scales over cores as it did here\n", nodes, cores
    printf "from one to %d (%.0f%% of ideal), and the file system keeps up with %.1f GB/s read by all: %.0f s. All join the %.0f GB of\n", used, 100 * efficiency, total / tokenizing / 1e9, tokenizing, corpus * total / bytes / 1e9
    printf "the corpus, each at the rate of one here, %.0f MB/s, if the file system keeps up: %.0f s. In all %.1f minutes. Cleaning, at the rate of one core here and if it\n", corpus / join / 1e6, joining, (tokenizing + joining) / 60
    printf "scales alike: %.0f s.\n", total / (text / clean_one * ranks * efficiency)
  }'
exit $grown
