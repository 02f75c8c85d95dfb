#!/bin/bash
# Text and corpora that are missing, damaged, too small or another's: refused with a reason, and nothing left behind.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
with() { # with FILE: the options of a run on this corpus
  echo "${model[@]}" --data-path "$1" --global-batch-size 4 --train-iters 8 --lr 0.01 --eval-iters 0 --save saved
}
# shellcheck disable=SC2046  # options are words
refused_corpus() { refused "$1" "$2" "$3" train $(with "$4"); }

# Files that are no corpora.
mkdir folder.h5
mkfifo pipe.h5
head -c 20000 corpus.h5 >cut.h5
refused_corpus 5 "cannot open absent.h5: No such file or directory" 2 absent.h5
refused_corpus 3 "folder.h5 is a directory, not a regular file" 2 folder.h5
refused_corpus 3 "pipe.h5 is a pipe, not a regular file" 2 pipe.h5
refused_corpus 3 "the file is damaged, incomplete or not an HDF5 file" 2 cut.h5
check "no run that was refused has made the folder of its checkpoints" [ ! -e saved ]

# A flipped bit: in the table of documents or in the tokens, found before the run and by verify.
done_by 1 corpus inspect corpus.h5 --documents 1
length=$(sed -n 's/^document 0, \([0-9]*\) tokens.*/\1/p' out)
table=$(LC_ALL=C grep -obUaP "\\x00{8}$(printf '\\x%02x\\x%02x' $((length % 256)) $((length / 256)))\\x00{6}" corpus.h5 |
  tail -1 | cut -d: -f1)
cp corpus.h5 flipped.h5
flip flipped.h5 $((table + 9))
refused_corpus 3 "the document offsets or block digests of flipped.h5 are damaged" 2 flipped.h5
tokens=$(LC_ALL=C grep -obUaP 't\x00h\x00e\x00 ' corpus.h5 | sed -n '20s/:.*//p')
cp corpus.h5 flipped.h5
flip flipped.h5 "$tokens"
refused 3 "the file is damaged, build it again" 1 corpus verify flipped.h5
refused_corpus 3 "of flipped.h5 are not those that were written" 2 flipped.h5
# shellcheck disable=SC2046  # options are words
refused 3 "of flipped.h5 are not those that were written" 2 train $(with flipped.h5) --data-check full
# shellcheck disable=SC2046  # options are words
done_by 1 train $(with flipped.h5) --data-check none --dry-run

# A corpus that is changed while it is read.
ended_by() { # ended_by MESSAGE RANKS COMMAND...: the run ends with exit code 3 when COMMAND has changed changed.h5
  cp corpus.h5 changed.h5
  rm -rf metrics
  timeout 60 "$mpiexec" -n "$2" "$trireme" train "${model[@]}" --data-path changed.h5 --global-batch-size 4 --lr 0.01 \
    --eval-iters 0 --train-iters 9999999 --save changed --metrics-file metrics >out 2>err &
  local job=$!
  while kill -0 $job 2>/dev/null && [ ! -s metrics ]; do sleep 0.02; done
  "${@:3}"
  wait $job
  code=$?
  if [ $code -eq 3 ] && grep -q "$1" err; then passed "$*: exit code 3"; else failed "exit code $code: $*"; fi
}
ended_by "changed.h5 was written to while it was read" 2 \
  dd if=/dev/urandom of=changed.h5 bs=1000 seek=2 count=20 conv=notrunc status=none
# The rank meets the missing bytes or the new size first.
ended_by "changed.h5 \(was truncated, or its disk failed\|became longer or shorter\)" 1 truncate -s 3000 changed.h5
done_by 1 train "${run[@]}" --save changed

# Too little text; another vocabulary.
printf 'abc' >short.txt
done_by 1 corpus build --input short.txt --output short.h5 --tokenizer bytes
refused_corpus 3 "has 3 tokens in 1 documents (of 3 in 1), but one sample of --seq-length 16 takes 17" 2 short.h5

# A corpus of another tokenizer: byte-level BPE of one merge.
make_bpe_files
bpe=(--tokenizer gpt2 --vocab-file encoder.json --merge-file vocab.bpe)
done_by 1 corpus build --input corpus.jsonl --output bpe.h5 "${bpe[@]}"
done_by 1 train "${run[@]}" --save saved
refused 3 "build the corpus with the model's tokenizer" 2 eval --load saved --data-path bpe.h5
refused 3 "their ids mean different things" 1 train "${model[@]}" --lr 1 --train-iters 1 --data-path 1 corpus.h5 1 bpe.h5

# Text that does not become a corpus.
built() { # built CODE MESSAGE ARGUMENT...: refused, and neither the corpus nor a part of it is there
  refused "$1" "$2" 1 corpus build --output new.h5 "${@:3}"
  check "nothing is left of it" [ -z "$(find . -name 'new.h5*')" ]
}
printf '{"text": "a good line"}\n{"tex\n' >bad.jsonl
built 3 "bad.jsonl:2:6: not JSON" --input bad.jsonl --tokenizer bytes
head -c 9000 corpus.h5 >text.jsonl.gz
built 3 "text.jsonl.gz does not hold compressed data" --input text.jsonl.gz --tokenizer bytes
{ printf 'PAR1\x15\x04' && cat corpus.jsonl; } >text.parquet
for command in "corpus clean --output new.jsonl --min-tokens 0 --input" "tokenizer train --output new --vocab-size 300 --input"; do
  # shellcheck disable=SC2086  # words
  refused 3 "its first bytes are those of Parquet: " 1 $command text.parquet
done
# A tokenizer replaces another one as a whole, alone in its folder, and none of its texts.
train_tokenizer=(tokenizer train --input corpus.jsonl --vocab-size 300 --output)
mkdir -p taken/vocab.json && echo old >taken/merges.txt
refused 2 "taken/vocab.json is there and is not a file" 1 "${train_tokenizer[@]}" taken
check "which leaves its other file" [ "$(cat taken/merges.txt)" = old ]
mkdir held && printf 'host elsewhere\npid 1\n' >held/.lock
refused 4 "held is in use by another job" 1 "${train_tokenizer[@]}" held
mkdir words && cp corpus.jsonl words/merges.txt
refused 2 "words/merges.txt is both input and output" 1 tokenizer train --input words/merges.txt --vocab-size 300 --output words
printf '{"a\\u0000\\u001b[2Jb": -1}' >small.json
built 3 "entry 'a\x00\x1b[2Jb'" --input corpus.jsonl --tokenizer gpt2 --vocab-file small.json --merge-file vocab.bpe
refused 2 "corpus.jsonl is both input and output" 1 corpus build --input corpus.jsonl --output corpus.jsonl --tokenizer bytes
refused 2 "corpus.h5 is both input and output" 2 train "${run[@]}" --metrics-file ./corpus.h5
refused 2 "corpus.h5 is both input and output" 1 train "${run[@]}" --trace-file corpus.h5
refused 2 "m would be written twice" 1 train "${run[@]}" --metrics-file m --trace-file m
cp corpus.jsonl kept.jsonl
refused 2 "--metrics-file kept.jsonl holds no records of a run" 2 train "${run[@]}" --metrics-file kept.jsonl
check "a file that holds no records stays" cmp corpus.jsonl kept.jsonl
refused 2 "pipe.h5 is there and is not a file" 2 corpus build --input corpus.jsonl --output pipe.h5 --tokenizer bytes
refused 2 "pipe.h5 is there and is not a file" 1 corpus sample corpus.h5 --share 0.5 --output pipe.h5
refused 2 "pipe.h5 is there and is not a file" 2 corpus clean --input corpus.jsonl --output pipe.h5 \
  --vocab-file encoder.json --merge-file vocab.bpe
check "the pipe is still there, and nothing is left of them" [ -p pipe.h5 -a -z "$(find . -name 'pipe.h5?*')" ]
