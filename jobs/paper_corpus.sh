#!/bin/bash
# Builds the corpora of the Megatron-LM paper of 2019 (section 4.1) from their sources: one for GPT-2, and with books one for BERT.
# usage: jobs/paper_corpus.sh SOURCES OUTPUT    in an allocation of SLURM with srun, otherwise with mpirun on $RANKS ranks
#   SOURCES has the files, *.jsonl or *.txt, perhaps packed: wikipedia/ (JSON with "title"), stories/ (CC-Stories), realnews/,
#   openwebtext/, wiki.test.raw (WikiText-103), lambada_test.jsonl, encoder.json, vocab.bpe; and for BERT books/, vocab.txt.
#   OUTPUT gets gpt2.h5, bert.h5, and for each step the removed documents with their reasons. A stopped chain goes on when it
#   is started again: a file that exists is complete.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,7s/^# //p' "$0"; exit 2; }
sources=$1 output=$2
RANKS=${RANKS:-$(nproc)}
source "$(dirname "$0")/environment.sh"

needed=(wikipedia stories realnews openwebtext wiki.test.raw lambada_test.jsonl encoder.json vocab.bpe)
[ ! -e "$sources/books" ] || needed+=(vocab.txt)
for name in "${needed[@]}"; do
  [ -e "$sources/$name" ] || { echo "$sources has no $name." >&2; exit 2; }
done
mkdir -p "$output"
gpt2=(--tokenizer gpt2 --vocab-file "$sources/encoder.json" --merge-file "$sources/vocab.bpe")

# make FILE COMMAND...: unless FILE exists. The command's output has this name once it is complete.
make() {
  local file=$output/$1
  [ ! -e "$file" ] || { echo "$file exists."; return; }
  echo "== $file"
  "${LAUNCH[@]}" "$TRIREME" "${@:2}" --output "$file"
}
# clean NAME OPTION...: documents without those that its options remove, which NAME.removed.jsonl.gz lists.
clean() { make "$1.jsonl" corpus clean --report "$output/$1.removed.jsonl.gz" "${@:2}"; }

# No training on a downstream task: Wikipedia has no article of WikiText-103's test set.
clean wikipedia --input "$sources/wikipedia" --blocked-titles "$sources/wiki.test.raw" --min-tokens 0 --jaccard 1
# Line feeds in sentences come from the preprocessing of CC-Stories.
clean stories --input "$sources/stories" --join-lines --min-tokens 0 --jaccard 1
# Documents of less than 128 tokens go, and of those with a Jaccard similarity of more than 0.7 all but one.
whole=(--input "$output/wikipedia.jsonl" "$output/stories.jsonl" "$sources/realnews" "$sources/openwebtext")
rules=(--min-tokens 128 --jaccard 0.7 "${gpt2[@]}")
clean gpt2 "${whole[@]}" "${rules[@]}"
make gpt2.h5 corpus build --input "$output/gpt2.jsonl" --append-eod "${gpt2[@]}"
# The paper found 10.8 % of WikiText-103's and 1.4 % of LAMBADA's 8-grams in its corpus.
"${LAUNCH[@]}" "$TRIREME" corpus overlap --corpus "$output/gpt2.jsonl" --ngram 8 \
  --test "$sources/wiki.test.raw" "$sources/lambada_test.jsonl" | tee "$output/overlap.jsonl"

# Books overlap with LAMBADA: they are for BERT alone.
[ -e "$sources/books" ] || exit 0
clean bert "${whole[@]}" "$sources/books" "${rules[@]}"
make bert.h5 corpus build --input "$output/bert.jsonl" --tokenizer wordpiece --vocab-file "$sources/vocab.txt" --split-sentences
