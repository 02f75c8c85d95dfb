#!/bin/bash
# jobs/paper_corpus.sh on a few documents of each source: usage paper_corpus_test.sh TRIREME
set -uo pipefail
export TRIREME=$1 RANKS=2
script=$(cd "$(dirname "$0")/../../jobs" && pwd)/paper_corpus.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
check() { # WHAT COMMAND...
  "${@:2}" || { echo "failed: $1"; failed=1; cat "$folder/log"; }
}
cd "$folder" || exit 1
mkdir -p in/{wikipedia,stories,realnews,openwebtext}
# words SEED: 150 words, a text of its own for each seed.
words() { awk -v seed="$1" 'BEGIN { srand(seed); for (i = 0; i < 150; ++i) printf "w%d ", rand() * 1000 }'; }
{
  echo "{\"id\": 1, \"title\": \"Du Fu\", \"text\": \"A poet. $(words 1)\"}"
  echo "{\"id\": 2, \"title\": \"Bai Juyi\", \"text\": \"Another poet. $(words 2)\"}"
} >in/wikipedia/wiki_00.jsonl
printf '{"text": "Once upon a\\ntime. %s"}\n' "$(words 3)" | gzip >in/stories/stories.jsonl.gz
{
  echo "{\"text\": \"Too short.\"}"
  echo "{\"text\": \"Near the first story. Once upon a time. $(words 3)\"}"
} >in/realnews/news.jsonl
words 5 >in/openwebtext/page.txt
printf ' \n = Du Fu = \n \n Du Fu was a poet . \n' >in/wiki.test.raw
words 5 | sed 's/^\(.*\) $/{"text": "\1"}/' >in/lambada_test.jsonl
"$TRIREME" tokenizer train --input in/openwebtext/page.txt --output tokenizer --vocab-size 280 >log 2>&1
cp tokenizer/vocab.json in/encoder.json
cp tokenizer/merges.txt in/vocab.bpe

"$script" in out >log 2>&1
check "the chain without books" [ $? -eq 0 ]
removed() { zcat "out/$1.removed.jsonl.gz" | sed 's/.*"reason":"\([^"]*\)".*/\1/' | paste -sd, -; }
check "an article of the test set goes" [ "$(removed wikipedia)" = "blocked title" ]
check "a line feed within a sentence of a story goes" grep -q "Once upon a time" out/stories.jsonl
check "short and repeated documents go" [ "$(removed gpt2)" = "short,near duplicate" ]
check "the corpus has the three others" grep -q "gpt2.h5: 3 documents" log
check "the overlap with LAMBADA is all of it" grep -q '"test":"in/lambada_test.jsonl".*"percent":100' out/overlap.jsonl
check "that with WikiText none" grep -q '"test":"in/wiki.test.raw".*"overlapping":0' out/overlap.jsonl
check "no corpus for BERT" [ ! -e out/bert.h5 ]

mkdir in/books
words 7 >in/books/book.txt
"$script" in out >log 2>&1
check "books need a vocabulary" [ $? -eq 2 ]
check "and say so" grep -q "in has no vocab.txt" log
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' w {0..9} '##'{0..9} >in/vocab.txt
touch -d yesterday out/gpt2.h5
before=$(stat -c %Y out/gpt2.h5)
"$script" in out >log 2>&1
check "the chain with books" [ $? -eq 0 ]
check "what exists stays" [ "$(stat -c %Y out/gpt2.h5)" = "$before" ]
check "BERT's corpus has books, too" grep -q "bert.h5: 4 documents" log
exit $failed
