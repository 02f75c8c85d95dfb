#!/bin/bash
# Fine-tuning: the tasks from files to predictions, on two grids, stopped and continued, and what it refuses.
source "$(dirname "$0")/functions.sh"

# A vocabulary, a pretrained BERT and a GPT: initial weights will do.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the ship crew rows oars who what . '?' {a..z} {0..9} '##s' >vocab.txt
make_text 1 | sed 's/\. the/. The/g' >text.jsonl  # sentences begin with capitals
make_corpus corpus 1
shape=(--num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 32 --dtype fp64 --lr 0.01 --train-iters 0)
done_by 1 corpus build --input text.jsonl --output bert.h5 --tokenizer wordpiece --vocab-file vocab.txt --split-sentences
done_by 1 train --model-type bert "${shape[@]}" --data-path bert.h5 --save bert
done_by 1 train "${shape[@]}" --data-path corpus.h5 --save gpt

# race N: articles of one question each, whose answer they state; some have four or eight words more.
race() {
  awk -v n="$1" 'BEGIN { for (i = 0; i < n; ++i) {
    right = i % 4
    more = substr(" the crew rows . the ship rows .", 1, 16 * (i % 3))
    printf "{\"article\": \"the %c rows .%s\", \"questions\": [\"who rows ?\"], \"options\": [[\"a\", \"b\", \"c\", \"d\"]], ", 97 + right, more
    printf "\"answers\": [\"%c\"], \"id\": \"%d\"}\n", 65 + right, i } }'
}
mkdir -p race/middle race/high
race 6 >race/middle/1.txt
race 5 >race/high/1.txt
race 7 >dev.jsonl
base=(finetune --task RACE --valid-data dev.jsonl --lr 0.01 --seq-length 24 --dtype fp64 --log-interval 1)
tune=("${base[@]}" --train-data race --global-batch-size 4 --epochs 3)
grid=(--tp 2 --pp 2)

done_by 1 "${tune[@]}" --pretrained-checkpoint bert --metrics-file one.jsonl
cp out one.json
head_is_short "a task"
check "the log has the batch as it was given, in examples" grep -q -- " --global-batch-size 4 " err
check "an epoch has the whole batches of its questions" [ "$(field iteration one.jsonl | tail -1)" -eq 6 ]
check "the result counts each question once" grep -q '"total": 7' one.json
done_by 4 "${tune[@]}" --load bert --metrics-file four.jsonl "${grid[@]}" --sequence-parallel
field lm_loss one.jsonl >losses
field lm_loss four.jsonl >losses4
check "four ranks compute the same losses" close_to losses losses4 1e-10
check "and the same result" cmp out one.json

done_by 4 "${tune[@]}" --load bert --metrics-file short.jsonl --variable-seq-lengths --tp 2 --pp 2 --schedule zero-bubble --sequence-parallel
field lm_loss short.jsonl >losses_short
check "micro-batches of their own lengths compute the same losses on four ranks" close_to losses losses_short 1e-12
check "and the same result" cmp out one.json

on 2 "${tune[@]}" --pretrained-checkpoint bert --save stopped --exit-interval 3 --use-distributed-optimizer
check "a run stops in an epoch" [ $code -eq 75 ]
check "and prints no result yet" [ ! -s out ]
done_by 4 "${tune[@]}" --pretrained-checkpoint bert --load stopped --load-or-init --metrics-file rest.jsonl "${grid[@]}"
tail -3 losses >last_losses
field lm_loss rest.jsonl >rest_losses
check "it goes on on another grid" close_to last_losses rest_losses 1e-10
check "to the same result" cmp out one.json
refused 3 "the checkpoint's run read other data" 1 "${tune[@]}" --load stopped --seed 7

# A run that is killed within an epoch, of 11 iterations, goes on from its local checkpoints.
long=("${base[@]}" --train-data race --global-batch-size 1 --epochs 5 --pretrained-checkpoint bert)
done_by 1 "${long[@]}"
cp out long.json
long+=(--save local --load local --load-or-init --local-checkpoint-interval 1 --local-checkpoint-dir steps)
: >err  # which the command before wrote
"$trireme" "${long[@]}" >out 2>err &
for _ in $(seq 3000); do
  if grep -q ' 26/55 ' err; then break; fi
  sleep 0.01
done
kill -9 $!
wait $! 2>/dev/null
done_by 1 "${long[@]}"
check "a killed run goes on from a local checkpoint" grep -q 'loading steps/.*, a local checkpoint: iteration [23][0-9]$' err
check "to the same result" cmp out long.json

race 3 >test.jsonl
seeds=("${base[@]}" --train-data race --pretrained-checkpoint bert --seeds 3 --test-data test.jsonl --epochs 1)
mkdir curves
done_by 1 "${seeds[@]}" --save seeds --metrics-file curves/a.jsonl
cp out seeds.json
check "three seeds have a result each" [ "$(grep -c '"seed":' out)" -eq 3 ]
check "a median and an ensemble" grep -q '"seeds": 3, "median_accuracy": .*"ensemble": {.*"ensemble_test": {' out
check "and folders of their own" [ -d seeds/seed-1236 ]
# Records of a seed are its own: its options, and its time from the end of the seed before.
start_of() { sed -n 's/.*"event":"start".*"'"$2"'":"\([^"]*\)".*/\1/p' curves/a.jsonl.seed-$1.lives; }
check "a record has its seed's number" [ "$(start_of 1236 seed)" = 1236 ]
check "and folder" [ "$(start_of 1236 save)" = "$scratch/seeds/seed-1236" ]
check "and begins after the seed before" [ ! "$(start_of 1236 began)" '<' "$(start_of 1235 time)" ]
refused 2 "curves has several files of metrics: name one, such as curves/a.jsonl.seed-1234" 1 report curves --output page.html
done_by 2 eval --task RACE --load seeds/seed-1234 --ensemble seeds/seed-1235 seeds/seed-1236 --data-path dev.jsonl race/high \
  --predictions-file letters --tp 2 --micro-batch-size 2
figures() { grep -o '"correct": [^}]*' "$1" | sed 's/, "loss".*//'; }
check "separately trained models form the ensemble that the seeds form" \
  [ "$(figures out | head -1)" = "$(sed -n 's/.*"ensemble": {\([^}]*\)}.*/\1/p' seeds.json)" ]
check "each data set keeps its own figures" [ "$(grep -c '"data": "race/high", .*"total": 5,' out)" -eq 1 ]
check "and its own letters" [ "$(wc -l <letters.0) $(wc -l <letters.1) $(grep -c '^[0-9]	[A-D]$' letters.1)" = "8 6 5" ]
done_by 1 eval --task RACE --load seeds/seed-1235 --data-path dev.jsonl
cp out alone
done_by 2 "${base[@]}" --train-data race --epochs 0 --load seeds/seed-1235 --seed 1235 --test-data race/high race/middle --tp 2
check "no epochs measure the model" [ "$(grep -o '"correct": [0-9]*, "total": 7' out)" = "$(grep -o '"correct": [0-9]*, "total": 7' alone)" ]
check "several sets keep their own figures" grep -q \
  '"test": {.*"total": 11,.*"sets": \[{"data": "race/high", "correct": [0-5], "total": 5, .*{"data": "race/middle", .*"total": 6,' out
done_by 1 "${base[@]}" --train-data race --epochs 0 --pretrained-checkpoint bert
check "also one with a new head" grep -q '"epoch": 0, .*"total": 7' out
printf 'host elsewhere\npid 1\n' >seeds/.lock
refused 4 "seeds is in use by another job, process 1 on host elsewhere" 1 "${seeds[@]}" --save seeds --metrics-file seeds.jsonl
check "seeds that are done are not begun again beside a job that has others to do" [ ! -e seeds.jsonl.seed-1234 ]
rm seeds/.lock

for attempt in 1 2; do  # stopped in each of the first two seeds
  on $attempt "${seeds[@]}" --load again --load-or-init --save again --tp $attempt --exit-interval 8
  check "a run stops in seed number $attempt" [ $code -eq 75 ]
done
check "after the results of those before" cmp out <(head -1 seeds.json)
done_by 2 "${seeds[@]}" --load again --load-or-init --save again --pp 2
check "it goes on to the same results, the ensemble's too" cmp out seeds.json
# Decorators of the groups end with the session of their seed.
done_by 2 "${seeds[@]}" --pp 2 --flight-record flights --time-communication --metrics-file timed.jsonl
check "records of communication and its times do not change the results" cmp out seeds.json
check "each seed has its records" [ "$(ls flights | wc -l)" -eq 3 ]
check "each seed has its times" [ "$(grep -l exposed_communication_ms timed.jsonl.seed-123[456] | wc -l)" -eq 3 ]
done_by 1 report --flight flights
check "and the last its records" grep -q 'every rank has made the same calls' out
done_by 1 "${seeds[@]}" --load again --save again --test-data dev.jsonl
check "measured on other test data it leaves out what it lacks" [ "$(grep -c '"test": {\|"ensemble_test"' out)" -eq 0 ]
check "and says so" grep -q 'no ensemble_test: an earlier run measured 3 of the seeds, without these data' err

# SQuAD 2.0: one question of each kind.
squad() {
  cat <<EOF
{"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "the ship rows 7 oars . the crew rows 9 oars .", "qas": [
 {"id": "q1", "question": "what rows 7 oars ?", "is_impossible": false, "answers": [{"text": "ship", "answer_start": $1}]},
 {"id": "q2", "question": "who rows 9 oars ?", "is_impossible": false, "answers": [{"text": "the crew", "answer_start": 23}]},
 {"id": "q3", "question": "who ?", "is_impossible": true, "answers": []}]}]}]}
EOF
}
squad 4 >squad.json
answer=(finetune --task SQUAD --train-data squad.json --lr 0.01 --seq-length 16 --doc-stride 4
  --dtype fp64 --global-batch-size 2 --epochs 2 --predictions-file p.json --n-best-file n.json)
done_by 1 "${answer[@]}" --valid-data squad.json --pretrained-checkpoint bert --save answers
cp out one.json
cp n.json n1.json
done_by 2 eval --task SQUAD --load answers --ckpt-step "$(field iteration out)" --data-path squad.json --doc-stride 4 --pp 2 \
  --predictions-file q.json
check "eval finds the same answers" cmp q.json p.json
check "and their figures" [ "$(grep -o '"total.*"f1": [0-9.]*' out)" = "$(grep -o '"total.*"f1": [0-9.]*' one.json)" ]
check "predictions have every question" [ "$(grep -c '"q[123]": "' p.json)" -eq 3 ]
check "SQuAD's figures are printed" grep -q '"exact": .*"f1": .*"HasAns_total": 2.*"NoAns_total": 1' one.json
done_by 2 "${answer[@]}" --valid-data squad.json --pretrained-checkpoint bert --tp 2 --sequence-parallel
check "two ranks find the same answers" [ "$(grep text n.json)" = "$(grep text n1.json)" ]
check "and the same figures" cmp out one.json
done_by 2 "${answer[@]}" --valid-data squad.json --pretrained-checkpoint bert --cp 2 --variable-seq-lengths
check "and micro-batches of their own lengths" cmp out one.json

# A GPT classifies by its last token.
printf 'i\tp\tq\tg\tb1\tb2\tp1\tp2\ts1\ts2\tl\tgold\n' >mnli.tsv
for i in 0 1 2 3; do printf '%d\tp\tq\tg\tb1\tb2\tp1\tp2\tthe ship\tthe crew %d\tl\tneutral\n' $i $i; done >>mnli.tsv
pairs=(finetune --task MNLI --train-data mnli.tsv --valid-data mnli.tsv --lr 0.01 --seq-length 32 --dtype fp64
  --global-batch-size 2 --epochs 2)
done_by 1 "${pairs[@]}" --pretrained-checkpoint gpt --metrics-file one.jsonl --save tuned
cp out one.json
done_by 2 eval --task MNLI --load tuned --ckpt-step "$(field iteration out)" --data-path mnli.tsv --cp 2
check "eval measures a fine-tuned GPT" [ "$(figures out)" = "$(figures one.json)" ]
done_by 2 "${pairs[@]}" --pretrained-checkpoint gpt --metrics-file two.jsonl --cp 2
field lm_loss one.jsonl >losses
field lm_loss two.jsonl >losses2
check "a GPT computes the same on two context ranks" close_to losses losses2 1e-10

# The GPT is measured and continued alike on two context ranks.
used_on_two_ranks gpt --cp --cp
refused 4 "(--micro-batch-size 2147483647 --seq-length 32) at least" \
  1 eval --load gpt --data-path corpus.h5 --micro-batch-size 2147483647

# An imported model's classes go by their names; here each has another than the exported model's.
done_by 1 train --model-type bert --apply-residual-connection-post-layernorm "${shape[@]}" --data-path bert.h5 --save published
done_by 1 "${pairs[@]}" --pretrained-checkpoint published --save classes
done_by 1 eval --task MNLI --load classes --data-path mnli.tsv --predictions-file ours
done_by 1 checkpoint export --load classes --output exported
check "an export has the task's names of classes" \
  [ "$(grep -c '"0": "contradiction"\|"1": "entailment"\|"2": "neutral"\|"neutral": 2' exported/config.json)" = 4 ]
cp -r exported nameless
sed -i 's/contradiction/LABEL_0/; s/entailment/LABEL_1/; s/neutral/LABEL_2/' nameless/config.json
done_by 1 checkpoint import --input nameless --output unnamed --dtype fp64
done_by 1 eval --task MNLI --load unnamed --data-path mnli.tsv --predictions-file theirs
check "classes without names keep their order" cmp theirs ours
check "which the log says" grep -q "have no names, and are taken for contradiction, entailment, neutral" err
sed 's/LABEL_0/ENTAILMENT/; s/LABEL_1/neutral/; s/LABEL_2/contradiction/' nameless/config.json >exported/config.json
done_by 1 checkpoint import --input exported --output named --dtype fp64
check "import says how to measure it" grep -q "measure it with trireme eval --task MNLI --load named --data-path FILE" err
done_by 2 eval --task MNLI --load named --data-path mnli.tsv --predictions-file theirs --tp 2
check "classes with names are those" cmp theirs \
  <(sed 's/entailment/N/; s/neutral/contradiction2/; s/contradiction$/entailment/; s/contradiction2/contradiction/; s/N$/neutral/' ours)
refused 3 "named holds a model with another head than RACE needs" 1 eval --task RACE --load named --data-path dev.jsonl
refused 3 "classes holds a model fine-tuned for MNLI. Give --task MNLI" 1 eval --task QQP --load classes --data-path mnli.tsv

# Remedies that messages name are followed.
followed() { # followed WHAT COMMAND_PATTERN ARGUMENT...: the command in the last message, with these at its end
  local command
  command=$(grep -o "trireme $2" err | head -1)
  command=${command% --train-data FILE*}
  # shellcheck disable=SC2086  # words
  done_by 1 ${command#trireme } "${@:3}"
  check "$1: $command" [ $code -eq 0 ]
}
refused 3 "classes holds a model that has a head, fine-tuned for MNLI, and no output layer to start from" \
  1 "${pairs[@]}" --pretrained-checkpoint classes
followed "a model with a head is measured" "eval --task MNLI --load classes" --data-path mnli.tsv
refused 3 "named holds a model that has a head, imported from BertForSequenceClassification" 1 "${pairs[@]}" --pretrained-checkpoint named
followed "also an imported one" "eval --task MNLI --load named" --data-path mnli.tsv
done_by 1 "${pairs[@]}" --load classes --save classes
check "and its run is continued" grep -q '"task": "MNLI", "seed": 1234' out
refused 3 "bert holds a pretrained model without a head for MNLI" 1 eval --task MNLI --load bert --data-path mnli.tsv
followed "a model without one is given it" "finetune --task MNLI --pretrained-checkpoint bert.*" "${pairs[@]:3}" --save given
done_by 1 eval --task MNLI --load given --data-path mnli.tsv

# STS-B is a regression. The best epoch is that of the largest mean of both correlations in the log.
similarity() { # similarity N: pairs, more similar the more of the second text is in the first
  printf 'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n'
  awk -v n="$1" 'BEGIN { split("a b c d e", w, " "); for (i = 0; i < n; ++i) { b = ""
    for (j = 1; j <= 5; ++j) b = b (j <= i % 6 ? w[j] : "x") " "
    printf "%d\tg\tf\t2012\t%d\tx\ty\ta b c d e\t%s.\t%.3f\n", 2 * i, i, b, i % 6 } }'
}
similarity 24 >sts.tsv
similarity 12 >sts_dev.tsv
cp sts_dev.tsv $'dev\xff.tsv'
values=(finetune --task STS-B --train-data sts.tsv --valid-data sts_dev.tsv --lr 0.03 --seq-length 24 --dtype fp64
  --global-batch-size 4 --epochs 5 --log-interval 1)
for family in bert gpt; do
  done_by 1 "${values[@]}" --pretrained-checkpoint $family --metrics-file one.jsonl --save value_$family
  cp out one.json
  check "the log names the metric" grep -q "the best epoch is that of the highest mean of Pearson's correlation and Spearman's correlation" err
  sed -n 's/.*Pearson.s correlation \([-0-9.]*\), Spearman.s correlation \([-0-9.]*\),.*/\1 \2/p' err |
    awk 'NR == 1 || $1 + $2 > best { best = $1 + $2 } END { printf "%.4f\n", best / 2 }' >best
  field score one.json >score
  check "$family: the best epoch has the largest of $(wc -l <best)" close_to score best 1e-3
  done_by 2 "${values[@]}" --pretrained-checkpoint $family --metrics-file two.jsonl --pp 2 --seeds 2
  field lm_loss one.jsonl >losses
  field lm_loss two.jsonl.seed-1234 >losses2
  check "$family computes the same on two ranks" close_to losses losses2 1e-10
  check "the loss of values falls" awk 'NR == 1 { first = $1 } END { exit !($1 < first / 2) }' losses
  check "seeds have a median" grep -q '"median_score": .*"ensemble": {"total": 12, "pearson": ' out
  done_by 2 eval --task STS-B --load value_$family --ckpt-step "$(field iteration one.json)" --data-path $'dev\xff.tsv' --tp 2 --predictions-file p
  check "its name is UTF-8" grep -qF $'"data": "dev\xef\xbf\xbd.tsv", ' out
  check "eval measures it" close_to <(field score out) score 1e-10
  check "and writes values" [ "$(grep -c '^[0-9]*	-\{0,1\}[0-9.e-]*$' p)" -eq 12 ]
done

# GLUE's tests have no labels: only predictions can be written.
printf 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t1\n1\t1\t2\tc\td\t1\n' >qqp.tsv
printf 'id\tquestion1\tquestion2\n5\ta\tb\n' >qqp_test.tsv
duplicates=(finetune --task QQP --train-data qqp.tsv --valid-data qqp.tsv --pretrained-checkpoint bert --lr 0.1
  --seq-length 16 --dtype fp64 --epochs 4 --predictions-file qqp.txt)
done_by 2 "${duplicates[@]}" --test-data qqp_test.tsv --seeds 2 --tp 2
printf 'index\tprediction\n5\t1\n' >expected
for file in qqp.txt qqp.txt.seed-1234 qqp.txt.seed-1235; do check "predictions for QQP: $file" cmp $file expected; done
refused 3 "qqp_test.tsv:1: the header is that of a test" 1 "${duplicates[@]}" --train-data qqp_test.tsv
refused 2 "qqp_test.tsv:1: the header is that of a test set without labels, which only yields predictions" 2 \
  "${duplicates[@]:0:${#duplicates[@]}-2}" --test-data qqp_test.tsv
refused 2 "--predictions-file needs the examples in one file, not in qqp.tsv and qqp_test.tsv" 1 \
  "${duplicates[@]}" --test-data qqp.tsv qqp_test.tsv
done_by 1 "${base[@]}" --train-data race --epochs 1 --pretrained-checkpoint bert --predictions-file p
check "RACE writes letters" [ "$(grep -c '^[0-9]	[A-D]$' p)" -eq 7 ]

# Refusals.
refused 3 "--task SQUAD needs a BERT" 2 "${answer[@]}" --valid-data squad.json --pretrained-checkpoint gpt
refused 3 "holds a model that has a head, fine-tuned for RACE" 1 "${tune[@]}" --pretrained-checkpoint stopped
refused 2 "give --pretrained-checkpoint, or --load" 1 "${tune[@]}"
refused 3 "batches of 4 examples, this one of 2, so that epochs differ. Give --global-batch-size 4" \
  1 "${base[@]}" --train-data race --global-batch-size 2 --epochs 3 --load stopped --save stopped
refused 2 "dev.jsonl is both input and output" 2 "${tune[@]}" --pretrained-checkpoint bert --predictions-file ./dev.jsonl
refused 2 "dev.jsonl is both input and output" 1 "${tune[@]}" --pretrained-checkpoint bert --trace-file dev.jsonl
mkdir folder && race 1 >folder/1.txt
refused 2 "folder/1.txt is both input and output" 2 "${base[@]}" --train-data folder --pretrained-checkpoint bert --predictions-file folder/1.txt
refused 2 "p.json would be written twice" 1 "${answer[@]/#n.json/p.json}" --valid-data squad.json --pretrained-checkpoint bert
refused 2 "--save ./bert is the folder of the pretrained model" 2 "${tune[@]}" --pretrained-checkpoint bert --save ./bert
refused 2 "--doc-stride is for --task SQUAD" 1 "${tune[@]}" --pretrained-checkpoint bert --doc-stride 4
refused 2 "have 11 examples, fewer than one batch" 1 "${base[@]}" --train-data race --pretrained-checkpoint bert --global-batch-size 12
sed -i 's/neutral/maybe/' mnli.tsv
refused 3 "mnli.tsv:2: unknown label 'maybe'" 2 "${pairs[@]}" --pretrained-checkpoint bert
(race 4; echo '{"article": 1}'; race 1) >mixed.jsonl
refused 3 'mixed.jsonl:5: "article" is 1 instead of a text' 2 "${base[@]}" --train-data mixed.jsonl --pretrained-checkpoint bert
done_by 1 "${base[@]}" --train-data mixed.jsonl --pretrained-checkpoint bert --on-bad-line skip
check "bad lines are counted where they are skipped" grep -q "skipped 1 lines or questions" err
refused 5 "nowhere/p.json: " 2 "${answer[@]/#p.json/nowhere\/p.json}" --valid-data squad.json --pretrained-checkpoint bert
check "predictions that cannot be written are refused before the training" [ "$(grep -c ' loss ' err)" -eq 0 ]
refused 5 "absent" 1 "${answer[@]}" --valid-data absent --pretrained-checkpoint bert
squad 5 >squad.json
refused 3 "squad.json: question 'q1': the answer 'ship' is not at character 5" 2 "${answer[@]}" --valid-data squad.json --pretrained-checkpoint bert
refused 3 "holds a BERT, which does not predict the next token" 2 eval --load bert --data-path corpus.h5
refused 3 "holds a model fine-tuned for a task, which does not predict the next token" 1 generate --load tuned --prompt a
