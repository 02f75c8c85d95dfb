#!/bin/bash
# Times `corpus clean` and `corpus build` of two programs in turn, by processor time of one thread with that of an empty run
# subtracted, and compares their outputs. Prints a table for bench/results: medians in MB/s of the input, and their ratio.
# usage: bench/cleaning/run.sh OLD_TRIREME NEW_TRIREME ENCODER_JSON VOCAB_BPE BOOK...
# Environment: REPETITIONS (default 5), PYTHON (default python3), KINDS (default all, see `rows` below), TMPDIR
set -euo pipefail
export LC_ALL=C TRIREME_THREADS=1
[ $# -ge 5 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
programs=("$1" "$2")
tokenizer=(--tokenizer gpt2 --vocab-file "$3" --merge-file "$4")
books=("${@:5}")
root=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows=${KINDS:-prose short code templates8 templates17 templates40 build}
declare -A megabytes=([prose]=60 [short]=40 [code]=42 [templates8]=40 [templates17]=40 [templates40]=20)

# seconds PROGRAM COMMAND INPUT OUTPUT: processor time of one run
seconds() {
  local arguments=("$2" --input "$3" --output "$4") TIMEFORMAT='%U %S'
  [ "$2" = build ] || arguments+=(--report "$4.report.jsonl")
  rm -rf "$4" "$4".*
  { time "$1" corpus "${arguments[@]}" "${tokenizer[@]}" >"$work/log" 2>&1; } 2>"$work/time" || { cat "$work/log" >&2; exit 1; }
  awk '{ print $1 + $2 }' "$work/time"
}

printf '{"text": "%s"}\n' "$(head -c 5000 "${books[0]}" | tr -d '\\"\n\r')" >"$work/empty.jsonl"
echo "| text | MB | MB/s, old | new | ratio |"
echo "| --- | ---: | ---: | ---: | ---: |"
for row in $rows; do
  if [ "$row" = build ]; then
    command=build input=$work/text.txt extension=h5
    until [ "$(stat -c %s "$input" 2>/dev/null || echo 0)" -ge 100000000 ]; do cat "${books[@]}" >>"$input"; done
  else
    command=clean input=$work/text.jsonl extension=jsonl
    "${PYTHON:-python3}" "$root/make_texts.py" "$row" "${megabytes[$row]}" "${books[@]}" >"$input"
  fi
  rm -f "$work/seconds"
  for ((i = 0; i < ${REPETITIONS:-5}; ++i)); do
    for p in 0 1; do
      start=$(seconds "${programs[$p]}" "$command" "$work/empty.jsonl" "$work/empty.$p.$extension")
      echo "$p $(seconds "${programs[$p]}" "$command" "$input" "$work/out.$p.$extension") $start" >>"$work/seconds"
    done
  done
  cmp "$work/out.0.$extension" "$work/out.1.$extension"
  [ "$command" = build ] || cmp "$work/out.0.jsonl.report.jsonl" "$work/out.1.jsonl.report.jsonl"
  awk '{ print $1, $2 - $3 }' "$work/seconds" | sort -k1,1 -k2,2g | awk -v row="$row" -v bytes="$(stat -c %s "$input")" '
    { value[$1, ++n[$1]] = bytes / 1e6 / $2 }
    function shown(p) { return sprintf("%.1f (%.1f to %.1f)", value[p, int((n[p] + 1) / 2)], value[p, n[p]], value[p, 1]) }
    END {
      middle = int((n[0] + 1) / 2)
      printf "| %s | %.0f | %s | %s | %.2f |\n", row, bytes / 1e6, shown(0), shown(1), value[1, middle] / value[0, middle]
    }'
done
