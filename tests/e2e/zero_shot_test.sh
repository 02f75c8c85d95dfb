#!/bin/bash
# Tasks that need no training: the same result on every grid, and files that no task can use.
tests=$(realpath "$(dirname "$0")/..")
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
done_by 1 train --num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 32 --data-path corpus.h5 \
  --global-batch-size 4 --train-iters 150 --lr 0.01 --eval-iters 0 --dtype fp64 --save saved
sed -n 's/.*"text": "\(.*\) "}/\1/p' corpus.jsonl | head -20 >text.txt
done_by 1 corpus build --input text.txt --output text.h5 --tokenizer bytes
eval_task() { # eval_task RANKS TASK FILE OPTION...
  local ranks=$1 task=$2 file=$3
  shift 3
  on "$ranks" eval --load saved --task "$task" --data-path "$file" "$@"
  [ $code -eq 0 ] || failed "exit code $code: $ranks ranks, $task $*"
}
number() { field "$1" out; }

# Logits of chosen windows.
done_by 1 eval --load saved --data-path text.h5 --logits-file one.h5 --logits-samples 3 0
check "the log says that logits are written" grep -q "wrote the logits of 2 samples to one.h5" err
# 32 positions of 257 tokens in fp64, twice.
check "the file holds both windows" [ "$(wc -c <one.h5)" -gt $((2 * 32 * 257 * 8)) ]
done_by 2 eval --load saved --data-path text.h5 --logits-file two.h5 --logits-samples 3 0
check "data ranks do not change the file" cmp one.h5 two.h5
refused 2 "--logits-samples 100000 is not one of the" 2 eval --load saved --data-path text.h5 --logits-file no.h5 \
  --logits-samples 100000
check "no file is left then" [ ! -e no.h5 ]
refused 2 "--logits-samples names a sample twice" 1 eval --load saved --data-path text.h5 --logits-file no.h5 --logits-samples 1 1
refused 2 "--logits-samples needs --logits-file" 1 eval --load saved --data-path text.h5 --logits-samples 1
refused 2 "--logits-file needs --task perplexity" 1 eval --load saved --data-path text.txt --logits-file no.h5 \
  --task WIKITEXT103

# WikiText-103: without overlap and detokenizer it is the perplexity of a corpus of this text.
done_by 1 eval --load saved --data-path text.h5
field loss out >corpus.loss
eval_task 1 WIKITEXT103 text.txt --overlapping-eval 32
field loss out >text.loss
check "windows without overlap have the perplexity of a corpus" close_to text.loss corpus.loss 1e-12
check "the log names the detokenizer" grep -q "detokenizer none, chosen by the file's path" err
bytes=$(wc -c <text.txt)
eval_task 1 WIKITEXT103 text.txt --overlapping-eval 8
field loss out >text.loss
check "each token but the first is scored once" [ "$(number tokens)" -eq $((bytes - 1)) ]
check "windows begin 8 tokens apart" [ "$(number windows)" -eq $(((bytes - 2) / 8 + 1)) ]
for grid in "2 --pp 2 --vpp 2" "3 --micro-batch-size 3"; do
  # shellcheck disable=SC2086  # words
  set -- $grid
  eval_task "$1" WIKITEXT103 text.txt --overlapping-eval 8 "${@:2}"
  field loss out >other.loss
  check "WikiText-103 on $grid" close_to other.loss text.loss 1e-10
done

# LAMBADA: texts of many lengths, which end anywhere.
sed 's/.*: "\(.*\)"}/\1/' corpus.jsonl | awk '{ print "{\"text\": \"" substr($0, 1, 8 + NR % 23) "\"}" }' >lines.jsonl
eval_task 1 LAMBADA lines.jsonl
cp out alone
check "some examples are right, some wrong" [ "$(number correct)" -gt 0 -a "$(number correct)" -lt "$(number total)" ]
eval_task 2 LAMBADA lines.jsonl --tp 2 --micro-batch-size 4
counts() { grep -o '"tokens": [0-9]*\|"correct.*' "$1"; }
check "LAMBADA counts the same on two tensor ranks" cmp <(counts out) <(counts alone)
eval_task 1 LAMBADA lines.jsonl --strict-lambada
check "the strict reading scores whole words" [ "$(number tokens)" -gt "$(field tokens alone)" ]
cp out alone
eval_task 3 LAMBADA lines.jsonl --strict-lambada
check "LAMBADA counts the same on three data ranks" cmp <(counts out) <(counts alone)

# Multiple choice in its three spellings.
echo '{"question": "the ship rows 3", "choices": ["oars.", "zzzz."], "answer": 0}
{"ctx": "the crew rows 4 ", "endings": ["qqqq", "oars"], "label": "1"}' >choices.jsonl
eval_task 1 MULTIPLE_CHOICE choices.jsonl
cp out alone
check "the model prefers what it has read" [ "$(number accuracy) $(number accuracy_normalized) $(number total)" = "1 1 2" ]
eval_task 2 MULTIPLE_CHOICE choices.jsonl --pp 2
check "multiple choice on two ranks" [ "$(number loss | cut -c1-12)" = "$(field loss alone | cut -c1-12)" ]
tail -1 choices.jsonl >hellaswag.jsonl
eval_task 2 HELLASWAG hellaswag.jsonl
check "HELLASWAG prints its name" grep -q '^{"task": "HELLASWAG", ' out
echo '{"activity_label": "Row", "ctx_a": "the crew [x]", "ctx_b": "ROWS", "ctx": "a", "endings": ["q[y]", "oars"], "label": 1}' \
  >published.jsonl
echo '{"ctx": "Row: the crew Rows", "endings": ["q", "oars"], "label": "1"}' >hellaswag.jsonl
eval_task 1 HELLASWAG hellaswag.jsonl
cp out alone
eval_task 1 HELLASWAG published.jsonl
check "a published line is joined and cleaned" cmp out alone
head -1 choices.jsonl >mmlu.jsonl
eval_task 1 MMLU mmlu.jsonl --long-examples cut
check "MMLU scores one letter a choice" [ "$(number tokens)" -eq 4 ] # a space and a letter

# Tasks in lm-eval's definition: its own figures of a tiny model (tests/fixtures/tasks/make.py), on several grids.
published=$tests/fixtures/tasks
done_by 1 checkpoint import --input "$published/model" --output gpt --dtype fp64
# figures SHOTS: of results.json and of the lines in out, as in expected.txt.
figures() {
  awk -v shots="$1" '/^  "results"/ { inside = 1 } /^  }/ { inside = 0 }
    inside && /^    "[a-z_]*": {/ { split($0, part, "\""); task = part[2] }
    inside && /,none": / { split($0, part, /"|,none": |,$/); print shots, task, part[2], part[3] part[4] }' results.json
  sed -n "s/^{\"task\": \"\([a-z_]*\)\".*\"loss\": \([0-9.e+-]*\),.*/$1 \1 loss \2/p" out
}
# same_figures SHOTS: each expected figure occurs, equal to 1e-9.
same_figures() {
  figures "$1" | awk -v shots="$1" 'NR == FNR { found[$1 " " $2 " " $3] = $4; next } $1 != shots { next }
    $3 == "loss" && $2 ~ /^mmlu_/ { next } # printed for all subjects together
    { value = found[$1 " " $2 " " $3]; ++count; off = value - $4; if (off < 0) off = -off
      if (value == "" || (value != $4 && !(off <= 1e-9 * ($4 < 0 ? -$4 : $4)))) { print "expected", $0, "found", value; bad = 1 } }
    END { exit bad || count < 30 }' - "$published/expected.txt"
}
multiple=hellaswag,arc_easy,arc_challenge,piqa,winogrande,boolq,openbookqa,mmlu,lambada_openai,lambada_standard
done_by 1 eval --load gpt --task $multiple,wikitext --data-path "$published/data" --output results.json --micro-batch-size 8
check "figures without examples are lm-eval's" same_figures 0
done_by 2 eval --load gpt --task $multiple --data-path "$published/data" --output results.json --num-fewshot 2 --tp 2 --micro-batch-size 3
check "figures with two examples are lm-eval's, on two tensor ranks" same_figures 2
check "texts too long are counted" grep -q "boolq: .* texts are longer than the model's sequences and lost their beginning" err
check "a group has its subjects" grep -q '"mmlu_humanities"' results.json
cp out alone
done_by 3 eval --load gpt --task $multiple --data-path "$published/data" --num-fewshot 2 --micro-batch-size 2
loss_counts() { grep -o '"task": "[a-z_]*"\|"loss": [0-9.]\{10\}\|"correct.*"total": [0-9]*' "$1"; }
check "three data ranks find the same" cmp <(loss_counts out) <(loss_counts alone)
done_by 1 eval --load gpt --task PIQA --data-path "$published/data/piqa/valid.jsonl" --limit 4
check "a file alone is a task's" [ "$(number total)" = 4 ]
sed 's/, "label".*/}/' "$published/data/piqa/valid.jsonl" >valid.jsonl
sed 's/.*"label": \([01]\).*/\1/' "$published/data/piqa/valid.jsonl" >valid-labels.lst
cp out alone
done_by 1 eval --load gpt --task PIQA --data-path valid.jsonl --limit 4
check "labels may stand in a file of their own" cmp out alone
two_shown() { done_by 1 eval --load gpt --task piqa --limit 4 --num-fewshot 2 "$@"; }
two_shown --data-path "$published/data/piqa"
cp out alone
train=$published/data/piqa/train.jsonl
two_shown --data-path "$published/data/piqa/valid.jsonl" --fewshot-data "$train"
check "examples may be named" cmp out alone
two_shown --data-path "$published/data/piqa/valid.jsonl" --fewshot-data "$train" --fewshot-seed 7
check "another seed shows others" [ "$(number loss)" != "$(field loss alone)" ]
refused 2 "--num-fewshot 1 needs train data of piqa to show, and --data-path valid.jsonl is the evaluated file" \
  1 eval --load gpt --task piqa --data-path valid.jsonl --num-fewshot 1
refused 2 "--num-fewshot 99 needs 100 examples of hellaswag" 1 eval --load gpt --task hellaswag --num-fewshot 99 \
  --data-path "$published/data"
refused 2 "--task hella is not one of perplexity, " 1 eval --load gpt --task hella --data-path valid.jsonl
refused 2 "--task LAMBADA is not a task that goes together with others" 1 eval --load gpt --task piqa,LAMBADA --data-path valid.jsonl
check "others are those in lm-eval's definition" [ "$(grep -c RACE err)" -eq 0 ]
refused 2 "--task is empty: it is one of perplexity, " 1 eval --load gpt --task "" --data-path valid.jsonl
refused 2 "--task has piqa twice: leave one out" 1 eval --load gpt --task piqa,boolq,PIQA --data-path valid.jsonl
refused 2 "--limit needs --task with a task in lm-eval's definition" 1 eval --load gpt --data-path valid.jsonl --limit 2
mkdir two && cp valid.jsonl two/train.jsonl && cp valid.jsonl two/other.jsonl
refused 3 "two: none of the 2 data files (other.jsonl, train.jsonl) there is named as the validation data of piqa" \
  1 eval --load gpt --task piqa --data-path two
refused 2 "two/train.jsonl is both input and output" 2 eval --load gpt --task piqa --data-path valid.jsonl --num-fewshot 1 \
  --fewshot-data two/ --output two/train.jsonl
refused 2 "shown.jsonl is both input and output" \
  1 eval --load gpt --task piqa --data-path valid.jsonl --num-fewshot 1 --fewshot-data shown.jsonl --output ./shown.jsonl

# While training: the figures that eval finds, in the metrics and as curves.
done_by 1 corpus build --input corpus.jsonl --output bpe.h5 --tokenizer huggingface --tokenizer-model "$published/model/tokenizer.json"
done_by 2 train --load gpt --finetune --use-checkpoint-args --data-path bpe.h5 --seq-length 96 --global-batch-size 2 --train-iters 5 \
  --lr 0.001 --eval-iters 0 --dtype fp64 --eval-tasks hellaswag,mmlu --eval-tasks-path "$published/data" --eval-tasks-interval 2 \
  --eval-tasks-num-fewshot 2 --eval-tasks-limit 3 --metrics-file tasks.jsonl --tensorboard-dir curves --save tuned
check "tasks are measured in time and at the end" [ "$(sed -n 's/.*"iteration": \([0-9]*\), "eval_task": "hellaswag".*/\1/p' \
  tasks.jsonl | tr '\n' ' ')" = "2 4 5 " ]
check "MMLU's groups have figures" [ "$(grep -c '"eval_task": "mmlu_humanities", "acc": [0-9.]*, "acc_stderr": ' tasks.jsonl)" = 3 ]
check "a curve has its name" grep -qa "tasks/hellaswag acc_norm" curves/*
done_by 1 eval --load tuned --task hellaswag,mmlu --num-fewshot 2 --limit 3 --data-path "$published/data"
check "eval finds the same" [ "$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' out | cut -c1-12)" = \
  "$(grep '"hellaswag"\|"mmlu"' tasks.jsonl | tail -2 | sed 's/.*"acc": \([0-9.]*\),.*/\1/' | cut -c1-12)" ]
cp -r "$published/data" tasks
file=tasks/hellaswag/hellaswag_val.jsonl
refused 2 "$file is both input and output: name another output" 1 train --model gpt2-124m --data-path bpe.h5 \
  --lr 0.001 --train-iters 1 --metrics-file none --eval-tasks hellaswag --eval-tasks-path tasks --trace-file "$file"
done_by 1 corpus merge bpe.h5 bpe.h5 --view --output view.h5
refused 2 "bpe.h5 is both input and output: name another output" 1 train "${model[@]}" --data-path view.h5 --global-batch-size 4 \
  --train-iters 1 --lr 0.01 --eval-iters 0 --metrics-file none --trace-file bpe.h5
refused 2 "bpe.h5 is both input and output: name another output" 1 eval --task perplexity --load tuned --data-path view.h5 \
  --logits-file bpe.h5
done_by 1 corpus verify bpe.h5
refused 2 "--eval-tasks has mmlu twice: leave one out" 1 train "${run[@]}" --eval-tasks mmlu,hellaswag,mmlu,mmlu --eval-tasks-path x
refused 2 "--eval-tasks hella is not a task that trireme eval measures" 1 train "${run[@]}" --eval-tasks hella --eval-tasks-path x

# Bad lines: an error with file and line, or all skipped, shown and counted.
skips() { # skips TASK PATTERN...: of bad.jsonl, where the first line alone is good
  eval_task 2 "$1" bad.jsonl --on-bad-line skip
  for pattern in "${@:2}"; do
    check "$1 shows the skipped line $pattern" [ "$(grep -c "skipped bad.jsonl:$pattern" err)" = 1 ]
  done
  check "$1 counts the skipped lines" [ "$(number total) $(number skipped_lines)" = "1 $(($# - 1))" ]
}
{ head -1 lines.jsonl && printf '%s\n' '' '{"words": "a b"}' '{"text": "a b"' '{"text": ""}' \
  '{"text": "a text of more than 32 characters and oars"}' $'{"text": "a \xff"}'; } >bad.jsonl
skips LAMBADA "3: the object has no key 'text'" "4:15: not JSON" "5: the text is empty" "6: .*Try --long-examples cut" "7:13: not JSON"
{ head -1 choices.jsonl; cat <<'J'; } >bad.jsonl

{"question": "a", "choices": ["b", "c"]}
{"question": "a", "choices": ["b", "c"], "answer": 2}
{"question": "a", "choices": ["b", "c"], "answer": ""}
{"question": "a", "choices": "b", "answer": 0}
{"question": "a", "choices": ["b", ""], "answer": 0}
[]
J
skips MULTIPLE_CHOICE "3: the object has no key 'label' or 'answer' or 'gold'" "4: the answer 2 is not one of the 2 choices" \
  "5: .*neither the number of a choice nor its letter" "6: the value of 'choices' is \"b\", not a list" "7: choice 1 is empty" \
  "8: the line is an array, not an object"
refused 3 "bad.jsonl:8: the line is an array, not an object" 2 eval --load saved --task MULTIPLE_CHOICE --data-path bad.jsonl
sed -i '$d' bad.jsonl
refused 3 "bad.jsonl:3: the object has no key 'label' or 'answer' or 'gold'" 2 eval --load saved --task MULTIPLE_CHOICE --data-path bad.jsonl
echo '{"text": " \u2003"}' >blank.jsonl
refused 3 "blank.jsonl:1: the text has no word" 1 eval --load saved --task LAMBADA --data-path blank.jsonl --strict-lambada
echo '{"activity_label": "a", "ctx_a": "b", "ctx": "c", "endings": ["d", "e"], "label": 0}' >half.jsonl
refused 3 "half.jsonl:1: the object has no key 'ctx_b'" 1 eval --load saved --task HELLASWAG --data-path half.jsonl
: >empty.jsonl
refused 3 "empty.jsonl has no example" 2 eval --load saved --task LAMBADA --data-path empty.jsonl
refused 3 "empty.jsonl: the text has 0 tokens: perplexity needs at least 2" 1 eval --load saved --task WIKITEXT103 --data-path empty.jsonl
refused 5 "cannot open absent.jsonl" 2 eval --load saved --task LAMBADA --data-path absent.jsonl
printf 'two lines\nof caf\xe9' >latin1.txt
refused 3 "latin1.txt:2: byte 16 of the file is not UTF-8" 1 eval --load saved --task WIKITEXT103 --data-path latin1.txt
refused 2 "--overlapping-eval 33 exceeds the windows of --seq-length 32" \
  1 eval --load saved --task WIKITEXT103 --data-path text.txt --overlapping-eval 33
refused 2 "--strict-lambada needs --task LAMBADA" 1 eval --load saved --data-path text.h5 --strict-lambada
