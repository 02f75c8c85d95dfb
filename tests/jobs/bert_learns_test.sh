#!/bin/bash
# usage: bert_learns_test.sh TRIREME
# bench/papers/bert_learns.sh on the books of the test data: its exit status says whether both tasks are learned.
set -uo pipefail
books=("${TRIREME_TEST_DATA:-}"/prose/*.txt)
if [ ! -f "${books[0]}" ]; then
  echo "skipped: no books at TRIREME_TEST_DATA/prose"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
TRIREME=$1 bash "$(dirname "$0")/../../bench/papers/bert_learns.sh" "$folder" "${books[@]}"
