#!/bin/bash
# Tokenizers on real texts, by processor time of one thread, in one run: this program in memory, other libraries in memory, and this
# program's whole `corpus build`. Prints a table for bench/results, with first calls of new tokenizers, whose caches are empty, and
# later calls on the same text. Fails where the numbers of tokens differ.
# usage: bench/tokenizer/run.sh ENCODER_JSON VOCAB_BPE TEXT...    GPT-2's, beside tiktoken, tokenizers, fastokens and gigatoken
#        bench/tokenizer/run.sh TOKENIZER_JSON - TEXT...          another BPE, without tiktoken
#        bench/tokenizer/run.sh VOCAB_TXT wordpiece TEXT...       BERT's uncased WordPiece, beside tokenizers
# Environment: BUILD (default build/release, with data_bench and trireme), PYTHON (default python3, with `pip install tiktoken
# tokenizers fastokens gigatoken`; those that are missing are left out), REPETITIONS (turns, default 9), BUILD_MB (default 300: texts are
# repeated up to this size for `corpus build`)
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,10s/^# //p' "$0"; exit 2; }
source "$(dirname "$0")/../common.sh"
use_build "${BUILD:-}" data_bench trireme
repetitions=${REPETITIONS:-9}
python=${PYTHON:-python3}
export TRIREME_THREADS=1
case $2 in
  -) options=(--tokenizer huggingface --tokenizer-model "$1") ;;
  wordpiece) options=(--tokenizer wordpiece --vocab-file "$1") ;;
  *) options=(--tokenizer gpt2 --vocab-file "$1" --merge-file "$2") ;;
esac

# Prints lines "library text call bytes tokens seconds" for `corpus build`; the tokens are those of the repeated text.
whole_builds() {
  local text name repetition TIMEFORMAT='%U %S'
  for text in "$@"; do
    name=$(basename "$text")
    : >"$work/text.txt"
    until [ "$(stat -c %s "$work/text.txt")" -ge $((${BUILD_MB:-300} * 1000000)) ]; do cat "$text" >>"$work/text.txt"; done
    for ((repetition = 0; repetition < repetitions; ++repetition)); do
      rm -f "$work/corpus.h5"
      { time "$build/trireme" corpus build --input "$work/text.txt" --output "$work/corpus.h5" "${options[@]}" \
        --invalid-utf8 keep >"$work/log" 2>&1; } 2>"$work/time" || { cat "$work/log" >&2; return 1; }
      echo "build $name later $(stat -c %s "$work/text.txt") 0 $(awk '{ print $1 + $2 }' "$work/time")"
    done
  done
}

# Programs take turns, so that all of them see the load of the machine.
for ((repetition = 0; repetition < repetitions; ++repetition)); do
  "$build/data_bench" --benchmark_filter='(first|encode)/' --benchmark_format=json "$@" 2>/dev/null >"$work/own.json"
  "$python" -c '
import json, sys
for run in json.load(sys.stdin)["benchmarks"]:
    kind, name = run["name"].split("/")[:2]
    print("trireme", name, "first" if kind == "first" else "later", run["bytes_per_second"], int(run["tokens"]), 1)' <"$work/own.json"
  "$python" "$root/bench/peers/tokenizers_python.py" "$1" "$2" 5 "${@:3}"
done >"$work/lines"
whole_builds "${@:3}" >>"$work/lines"
awk '{ print $1, $2, $3, $4 / $6 / 1e6, $5 }' "$work/lines" | sort -k2,3 -k1,1 -k4,4g | awk '
  function flush() {
    if (n > 0) shown[text, call, library] = sprintf("%.1f (%.1f to %.1f)", value[int((n + 1) / 2)], value[1], value[n])
    n = 0
  }
  BEGIN { columns = split("trireme build tiktoken tokenizers fastokens gigatoken", column) }
  $1 != library || $2 != text || $3 != call {
    flush()
    library = $1; text = $2; call = $3; measured[library] = 1
    if (!(text in seen)) { seen[text] = 1; order[++texts] = text }
    if (library != "build" && !(text in tokens)) tokens[text] = $5
    if (library != "build" && tokens[text] != $5) { print "the numbers of tokens of " text " differ: " tokens[text], "and", $5; failed = 1; exit }
  }
  { value[++n] = $4 }
  END {
    if (failed) exit 1
    flush()
    head = "| MB/s | tokens | calls |"; line = "| --- | --- | --- |"
    for (c = 1; c <= columns; c++) {
      if (!(column[c] in measured)) continue
      head = head " " (column[c] == "trireme" ? "this program" : column[c] == "build" ? "corpus build" : column[c]) " |"
      line = line " --- |"
    }
    print head; print line
    for (i = 1; i <= texts; i++) {
      t = order[i]
      if (!((t, "later", "tokenizers") in shown)) continue  # a text of data_bench alone
      for (j = 1; j <= split("first later", calls); j++) {
        row = "| " t " | " tokens[t] " | " calls[j] " |"
        for (c = 1; c <= columns; c++) if (column[c] in measured) row = row " " shown[t, calls[j], column[c]] " |"
        print row
      }
    }
  }'
