#!/bin/bash
# Corpora built by several ranks, from compressed text, in several attempts: always the same corpus, or an error and no file
# that looks complete.
shim=$(realpath "${3:?usage: corpus_build_test.sh TRIREME MPIEXEC IO_FAULT_SHIM}")
measure=$(realpath "$(dirname "$0")/../../bench/corpus/measure.sh")
source "$(dirname "$0")/functions.sh"

for seed in 1 2 3 4; do make_text $seed; done >text.jsonl
make_text 5 | sed 's/.*": "//; s/"}//' >text.txt
build=(corpus build --input text.jsonl text.txt --tokenizer bytes --append-eod)
done_by 1 "${build[@]}" --part-size 20000 --output one.h5
check "parts are joined and gone" [ ! -e one.h5.parts ]
check "the log says how many" grep -q 'joining [0-9]* parts' err
done_by 1 corpus verify one.h5

# Ranks, threads, the size of parts.
for ranks in 2 4; do
  done_by $ranks "${build[@]}" --part-size 20000 --output ranks.h5
  check "$ranks ranks make the same corpus" cmp one.h5 ranks.h5
  check "only one of them says so" [ "$(grep -c 'documents,' err)" -eq 1 ]
done
done_by 1 "${build[@]}" --workers 3 --output ranks.h5
check "parts of any size make the same corpus" cmp one.h5 ranks.h5

done_by 1 "${build[@]}" --split-sentences --output sentences.h5
done_by 2 "${build[@]}" --split-sentences --part-size 3000 --output ranks.h5
check "parts of any size keep the same sentences" cmp sentences.h5 ranks.h5
done_by 1 corpus verify sentences.h5

# Compressed text.
gzip -k text.jsonl
zstd -q --ultra --long=31 <text.txt >text.txt.zst # a window of 2 GiB
done_by 2 corpus build --input text.jsonl.gz text.txt.zst --tokenizer bytes --append-eod --output packed.h5
check "compressed text makes the same corpus" cmp one.h5 packed.h5
bzip2 -k text.jsonl
xz -k text.txt
done_by 2 corpus build --input text.jsonl.bz2 text.txt.xz --tokenizer bytes --append-eod --output packed.h5
check "so does any compression" cmp one.h5 packed.h5

# Folders, patterns and standard input.
mkdir folder
cp text.jsonl folder/a.jsonl
cp text.txt folder/b.txt
for input in folder 'folder/?.*'; do
  done_by 2 corpus build --input "$input" --tokenizer bytes --append-eod --output packed.h5
  check "$input stands for its files" cmp one.h5 packed.h5
done
done_by 1 corpus build --input text.jsonl --tokenizer bytes --output json.h5
TMPDIR=$PWD/folder done_by 1 corpus build --input - --input-format json --tokenizer bytes --output packed.h5 <text.jsonl
check "standard input makes the same corpus" cmp json.h5 packed.h5
refused 3 "/dev/stdin:2:1: not JSON" 1 corpus build --input - --input-format json --tokenizer bytes --output bad.h5 \
  < <(head -1 text.jsonl && echo bad)
ln -s gone.jsonl folder/c.jsonl
refused 2 "--json-key text,text names a key twice" 1 corpus build --input text.jsonl --json-key text,text --tokenizer bytes --output bad.h5
refused 5 "folder/c.jsonl" 1 corpus build --input folder --tokenizer bytes --output bad.h5
rm folder/c.jsonl
mkdir folder/empty
done_by 1 corpus build --input 'folder/*' --tokenizer bytes --append-eod --output packed.h5
check "a pattern stands for files alone" cmp one.h5 packed.h5
rmdir folder/empty
check "and its copy is gone" [ "$(ls folder)" = "a.jsonl
b.txt" ]
mkdir copies
mkfifo input
exec 3<>input # stays open: there may be more to read
TMPDIR=$PWD/copies "$trireme" corpus build --input - --tokenizer bytes --output killed.h5 <input >out 2>err &
job=$!
cat text.jsonl >input
for _ in {1..600}; do
  if [ -n "$(find /proc/$job/fd -lname "$PWD/copies/*")" ] || ! kill -0 $job; then break; fi
  sleep 0.1
done
check "standard input is copied" [ -n "$(find /proc/$job/fd -lname "$PWD/copies/*")" ]
kill -9 $job
wait $job 2>/dev/null
exec 3>&-
check "nothing is left of the copy when the command is killed" [ -z "$(ls copies)" ]
refused 2 "standard input (-) can be read once, by one rank" 2 corpus build --input - --tokenizer bytes --output bad.h5
refused 3 "none/* matches no file" 1 corpus build --input 'none/*' --tokenizer bytes --output bad.h5
mkdir empty
refused 3 "the folder empty has no files" 2 corpus build --input empty --tokenizer bytes --output bad.h5

size=$(stat -c %s text.jsonl.gz)
head -c $((size / 2)) text.jsonl.gz >cut.jsonl.gz
refused 3 "cut.jsonl.gz, byte $((size / 2)): the gzip data end here" 1 corpus build --input cut.jsonl.gz --tokenizer bytes --output bad.h5
refused 3 "cut.jsonl.gz, byte $((size / 2)): the gzip data end here" 2 corpus build --input text.txt cut.jsonl.gz --part-size 999 \
  --tokenizer bytes --output bad.h5
check "what was refused is not there" [ ! -e bad.h5 ]
rm -rf bad.h5.parts
cp text.txt.zst flipped.zst
size=$(stat -c %s flipped.zst)
for place in 3 4 5 6; do flip flipped.zst $((size * place / 8)); done
refused 3 "the Zstandard data are damaged" 1 corpus build --input flipped.zst --tokenizer bytes --output bad.h5

# Lines and runs that are too long, in little memory.
{ cat text.jsonl && printf '{"text": "%0300000d"}\n' 7; } >long.jsonl
line=$(wc -l <long.jsonl)
refused 3 "long.jsonl:$line: the line has more than 100000 bytes; --max-line allows more" 2 corpus build --input long.jsonl \
  --max-line 100000 --part-size 20000 --tokenizer bytes --output bad.h5
rm -rf bad.h5.parts
make_bpe_files
printf '{"text": "a <|endoftext|> b <|endoftext|>"}\n' >special.jsonl
done_by 2 corpus build --input special.jsonl text.txt --part-size 3000 --tokenizer gpt2 --vocab-file encoder.json \
  --merge-file vocab.bpe --output special.h5
check "names of special tokens are counted" grep -q 'which became ordinary text: 2 <|endoftext|>' err
special=(corpus build --input special.jsonl --tokenizer gpt2 --vocab-file encoder.json --merge-file vocab.bpe --output parsed.h5)
refused 3 "special.jsonl:1: the text contains '<|endoftext|>', the name of a special token. --special-tokens-in-text text or parse" 1 \
  "${special[@]}" --special-tokens-in-text refuse
done_by 1 "${special[@]}" --special-tokens-in-text parse
check "or become these tokens" grep -q 'which became these tokens: 2 <|endoftext|>' err
check "a, b, three spaces and two of them are 7 tokens" grep -q '1 document, 7 tokens' err
head -c 40000000 /dev/zero | tr '\0' x >run.txt
# AddressSanitizer takes terabytes of addresses, and keeps what was freed for a while.
most_kib=700000 more_kib=20000
[ -z "${ASAN_OPTIONS:-}" ] || most_kib=unlimited more_kib=600000
(ulimit -v $most_kib; OPENBLAS_NUM_THREADS=1 timeout 60 "$trireme" corpus build --input run.txt --tokenizer gpt2 --vocab-file encoder.json \
  --merge-file vocab.bpe --workers 1 --output run.h5 >out 2>err)
check "a run of 40 MB is cut, in less memory than 700 MB" [ $? -eq 0 ]
check "and it is said how often" grep -q 'cut 38 texts of more than 1048576 bytes' err
done_by 1 corpus verify run.h5

# peak ARGUMENT...: runs trireme; the KiB that it took at most in $peak.
peak() {
  rm -f memory
  bash "$measure" memory "$trireme" "$@" >out 2>err
  code=$?
  read -r peak _ <memory
}
yes 'rowing on ' | tr -d '\n' | head -c 64000000 >line.txt
head -c 8000000 line.txt >short_line.txt
one_line=(corpus build --tokenizer bytes --workers 1 --output line.h5)
peak "${one_line[@]}" --input short_line.txt
usual=$peak
peak "${one_line[@]}" --input line.txt
check "a line of 64 MB takes no more memory than one of 8 MB" [ "$code $((peak - usual > more_kib))" = "0 0" ]
done_by 2 corpus verify line.h5
flip line.h5 100000000
on 1 corpus verify line.h5
damage=$(grep -o 'tokens [0-9]* to [0-9]* of line.h5 are not' err)
refused 3 "${damage:-no damage}" 2 corpus verify line.h5
peak "${one_line[@]}" --input line.txt --part-size 1000000000
check "nor in one part" [ "$code $((peak - usual > more_kib))" = "0 0" ]
{ printf '{"text": "' && cat line.txt && printf '"}\n'; } >line.jsonl
peak "${one_line[@]}" --input line.jsonl --max-line 1000000
check "nor one of JSON that is refused" [ "$code $((peak - usual > more_kib))" = "3 0" ]

# A limit of the sizes of files, which the parts keep and the corpus of 16 MB does not.
rm -f line.h5
one_line+=(--input short_line.txt --part-size 2000000)
(ulimit -f 12000 && "$trireme" "${one_line[@]}" >out 2>err)
check "a file that may not grow: exit code 4" [ $? -eq 4 ]
check "no corpus, and the limit" eval '[ ! -e line.h5 ] && grep -q "File too large: ulimit -f (in bytes) of this process is 12288000" err'
done_by 1 "${one_line[@]}"
check "without the limit the build goes on" grep -q 'reusing 4 of 4 parts' err
done_by 1 corpus verify line.h5
mv line.h5 one_rank.h5
done_by 3 "${one_line[@]}"
check "three ranks write the same blocks of tokens, which begin in one part and end in another" cmp -s one_rank.h5 line.h5
rm -rf line.* short_line.txt one_rank.h5

# Killed before calls that change a file, every eleventh of them, and run again; the parts that were done are kept.
build=(corpus build --input text.jsonl text.txt --tokenizer bytes --append-eod --part-size 40000 --workers 1)
whole=0 wrong=0 calls=0 kept=0
while [ $whole -eq 0 ] && [ $calls -lt 400 ]; do
  rm -rf killed.h5 killed.h5.*
  calls=$((calls + 11))
  { shimmed kill $calls "${build[@]}" --output killed.h5; } 2>/dev/null
  [ $code -eq 0 ] && whole=1
  if [ -e killed.h5 ]; then cmp -s one.h5 killed.h5 || wrong=$((wrong + 1)); fi
  on 1 "${build[@]}" --output killed.h5
  grep -q 'parts of an earlier build' err && kept=$((kept + 1))
  { [ $code -eq 0 ] && cmp -s one.h5 killed.h5 && [ ! -e killed.h5.parts ]; } || wrong=$((wrong + 1))
done
check "killed at any of up to $calls calls, then run again: always the whole corpus" [ "$whole $wrong" = "1 0" ]
check "finished parts are kept" [ $kept -gt 2 ]

# Such a call fails; a disk that is full.
failures_seen=0 wrong=0
for ((at = 3; at < calls; at += 17)); do
  rm -rf killed.h5 killed.h5.*
  shimmed 28 $at "${build[@]}" --output killed.h5
  [ $code -eq 0 ] || failures_seen=$((failures_seen + 1))
  [ $code -eq 0 ] || [ $code -eq 5 ] || wrong=$((wrong + 1))
  if [ -e killed.h5 ]; then cmp -s one.h5 killed.h5 || wrong=$((wrong + 1)); fi
done
check "ENOSPC at any call: exit code 5, nothing half-made ($failures_seen failures)" [ $wrong -eq 0 ]
rm -rf killed.h5 killed.h5.*
mkdir full
if mount -t tmpfs -o size=100k tmpfs full 2>/dev/null; then
  refused 5 "No space left on device" 2 "${build[@]}" --output full/new.h5
  check "a full disk leaves no corpus" [ ! -e full/new.h5 ]
fi

# A rank that is killed, and two builds at once.
for _ in $(seq 40); do cat text.jsonl; done >more.jsonl
more=(corpus build --input more.jsonl --tokenizer gpt2 --vocab-file encoder.json --merge-file vocab.bpe --part-size 20000
  --workers 1)
done_by 2 "${more[@]}" --output more.h5
"$mpiexec" -n 2 "$trireme" "${more[@]}" --output again.h5 >out 2>err &
job=$!
for _ in $(seq 2000); do
  parts=(again.h5.parts/*)
  [ ${#parts[@]} -gt 20 ] && break # some of them unfinished
  sleep 0.003
done
pkill -STOP -P $job
refused 4 "again.h5 is in use by another job" 1 "${more[@]}" --output again.h5
pkill -9 -P $job 2>/dev/null
wait $job 2>/dev/null
while pgrep -f "output again.h5" >/dev/null; do sleep 0.05; done  # mpirun may leave before all its ranks have
check "a build of which the ranks are killed leaves no corpus" [ ! -e again.h5 ]
done_by 4 "${more[@]}" --output again.h5
check "the next one goes on" grep -q 'parts of an earlier build' err
check "and makes the same corpus" cmp more.h5 again.h5
