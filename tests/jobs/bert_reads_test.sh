#!/bin/bash
# usage: bert_reads_test.sh TRIREME
# bench/papers/bert_reads.sh on the questions of RACE's shape of the test data: its exit status says whether it answers over 90 %.
set -uo pipefail
splits=()
for split in train dev test; do splits+=("${TRIREME_TEST_DATA:-}/mrc/race_format_synthetic.$split.jsonl"); done
if [ ! -f "${splits[0]}" ]; then
  echo "skipped: no questions at TRIREME_TEST_DATA/mrc"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TRIREME=$1 bash "$(dirname "$0")/../../bench/papers/bert_reads.sh" "$folder" "${splits[@]}"
