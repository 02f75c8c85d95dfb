#!/bin/bash
# Imported BERTs with the heads of tasks: classes, losses, answers and figures are those of transformers and its programs
# (tests/fixtures/tasks/make_bert.py); names of classes stay with a model.
bert=$(realpath "$(dirname "$0")/../fixtures/tasks/bert")
source "$(dirname "$0")/functions.sh"

for head in three two one choices spans; do
  cp -r "$bert/models/$head" "$head.in"
  cp "$bert/models/vocab.txt" "$head.in/"
  done_by 1 checkpoint import --input "$head.in" --output $head --dtype fp64
  sed -n 's/.*measure it with //p' err >$head.printed
done

# same_figures TASK TOLERANCE: all of expected.txt are in the last output.
same_figures() {
  local figures=0 task figure value
  while read -r task figure value; do
    [ "$task" = "$1" ] || continue
    field "$figure" out >found
    echo "$value" >expected
    close_to found expected "$2" || { echo "$task $figure: $(cat found) instead of $value" >>err; return 1; }
    figures=$((figures + 1))
  done <"$bert/expected.txt"
  [ $figures -ge 2 ]
}
# measured TASK HEAD: eval on one rank, and on two in fp32.
measured() {
  local task=$1 file=("$bert/files/$1".*)
  done_by 1 eval --task "${task%-[12].?}" --load "$2" --data-path "${file[0]}" --predictions-file predictions --micro-batch-size 4 "${@:3}"
  check "$task has transformers' figures" same_figures "$task" 1e-10
}
for task in MNLI QQP QNLI RTE WNLI MRPC SST-2 CoLA STS-B RACE; do
  head=two
  case $task in MNLI) head=three ;; STS-B) head=one ;; RACE) head=choices ;; esac
  measured $task $head
  tail -n +2 predictions | cut -f 2 >values
  if [ $task = STS-B ]; then
    check "and its values" close_to values "$bert/predictions/$task" 1e-8
  else
    check "and its classes" cmp values "$bert/predictions/$task"
  fi
  if [ $head = two ]; then
    check "$task says which order it assumes" grep -q "classes have no names, and are taken for .*, .*\. If their order is another" err
  fi
done
done_by 2 eval --task MNLI --load three --data-path "$bert/files/MNLI.tsv" --dtype fp32 --tp 2
check "two ranks in fp32 are close" same_figures MNLI 1e-5
done_by 2 eval --task STS-B --load one --data-path "$bert/files/STS-B.tsv" --dtype fp32 --tp 2
check "also for a value" same_figures STS-B 1e-5
check "predictions of MNLI have the numbers of its file" [ "$(done_by 1 eval --task MNLI --load three --data-path "$bert/files/MNLI.tsv" \
  --predictions-file p && sed -n 3p p | cut -f 1)" = 3 ]

# answers FILE: "ID TEXT" of a question and its best answer.
answers() { sed -n 's/^ *"\([0-9-]*\)": "\(.*\)",\{0,1\}$/\1 \2/p' "$1"; }
# best FILE: "ID TEXT<TAB>START END", four for each question.
best() {
  awk -F'"' '/": \[/ { id = $2; n = 0 } /"text"/ { text = $4 } /"start_logit"/ { start = substr($3, 3) + 0 }
    /"end_logit"/ { if (n++ < 4) printf "%s %s\t%.4f %.4f\n", id, text, start, substr($3, 3) + 0 }' "$1"
}
for version in 1.1 2.0; do
  measured SQUAD-$version spans --doc-stride 8 --max-query-length 6 --n-best-size 40 --max-answer-length 6 --n-best-file n.json
  check "version $version: the answers are those of BERT's program" cmp <(answers predictions) "$bert/predictions/SQUAD-$version"
  check "and the best of each with their logits" cmp <(best n.json) <(awk '{ sub(/\t[^ ]* /, "\t"); print }' "$bert/predictions/SQUAD-$version.n_best" |
    awk -F'\t' '{ split($2, logit, " "); printf "%s\t%.4f %.4f\n", $1, logit[1], logit[2] }')
done

# The printed commands measure; where a head fits several tasks, each of them.
check "a model with named classes has one task" grep -qx "trireme eval --task MNLI --load three --data-path FILE" three.printed
check "one with a value has one, too" grep -qx "trireme eval --task STS-B --load one --data-path FILE" one.printed
check "one without names has several" grep -q "eval --task TASK --load two --data-path FILE, with its TASK of QQP, QNLI, RTE, WNLI, MRPC, SST-2, CoLA" two.printed

# Names in any order and case; a wrong name is no task's.
cp -r two.in turned.in
sed -i 's/"hidden_act"/"id2label": {"0": "POSITIVE", "1": "NEGATIVE"}, "hidden_act"/' turned.in/config.json
done_by 1 checkpoint import --input turned.in --output turned --dtype fp64
check "names of classes tell the task" grep -q "measure it with trireme eval --task SST-2 --load turned" err
done_by 1 eval --task SST-2 --load turned --data-path "$bert/files/SST-2.tsv" --predictions-file predictions
check "turned classes are found by their names" cmp <(tail -n +2 predictions | cut -f 2 | tr 01 10) "$bert/predictions/SST-2"
refused 3 "the model's classes are POSITIVE, NEGATIVE, and none is not_duplicate: it was not fine-tuned for QQP" 1 \
  eval --task QQP --load turned --data-path "$bert/files/QQP.tsv"
refused 3 "of another kind. Try trireme eval --task RACE --load choices --data-path FILE" 1 eval --task QQP --load choices --data-path "$bert/files/QQP.tsv"
refused 3 "2 classes instead of 3 classes. Try trireme eval --task SST-2 --load turned" 1 eval --task MNLI --load turned --data-path "$bert/files/MNLI.tsv"
refused 3 "or measure this one: trireme eval --task MNLI --load three --data-path FILE" 1 generate --load three --prompt a
refused 3 "a single value instead of 2 classes. Try trireme eval --task STS-B --load one" 1 \
  eval --task QQP --load one --data-path "$bert/files/QQP.tsv"
done_by 1 checkpoint export --load one --output one.out --dtype fp32
check "an export of a value is the import" [ "$(grep -c '"problem_type": "regression"\|"0": "LABEL_0"' one.out/config.json)" = 2 ]
sed -i 's/"regression"/"single_label_classification"/' one.in/config.json
refused 3 "problem_type is 'single_label_classification': with 1 label only 'regression' is supported" 1 \
  checkpoint import --input one.in --output refused
done_by 1 checkpoint export --load turned --output turned.out --dtype fp32
check "an export has the names of the import" [ "$(grep -c '"0": "POSITIVE"\|"1": "NEGATIVE"\|"POSITIVE": 0\|"NEGATIVE": 1' turned.out/config.json)" = 4 ]
