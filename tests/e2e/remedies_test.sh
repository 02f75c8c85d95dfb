#!/bin/bash
# Errors about files name a remedy. Followed, it leads to no further error. Errors about options: tests/app/run_config/remedies_test.cpp.
tests=$(realpath "$(dirname "$0")/..")
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the ship rows oars . {a..z} {0..9} >vocab.txt
make_text 1 | sed 's/\. the/. The/g' >sentences.jsonl
done_by 1 corpus build --input sentences.jsonl --output flat.h5 --tokenizer wordpiece --vocab-file vocab.txt
done_by 1 corpus build --input sentences.jsonl --output bert.h5 --tokenizer wordpiece --vocab-file vocab.txt --split-sentences
sed -n 's/.*"text": "\(.*\) "}/\1/p' corpus.jsonl | head -5 >text.txt
echo '{"text": "the ship rows 7 oars. the crew rows 7 oars."}' >long.jsonl
echo '{"prompt": "a"}' >prompts.jsonl

# Runs of eight iterations that stopped after four.
same="train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --data-path corpus.h5 --global-batch-size 4 --train-iters 8 --eval-iters 0"
more="$same --lr 0.01"
bert="train --model-type bert --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 32 --train-iters 1 --lr 0.01 --eval-iters 0 --dry-run"
# shellcheck disable=SC2086  # words
for run in saved weights:--no-save-optim dense:--disable-bias-linear "experts:--disable-bias-linear --num-experts 4"; do
  options=${run#*:}
  on 1 $more --save "${run%%:*}" --exit-interval 4 ${options#saved}
done
generate="generate --load saved --max-new-tokens 4"
done_by 1 $generate --prompts prompts.jsonl --output answers.jsonl
eval="eval --load saved --micro-batch-size 4"
piqa=$tests/fixtures/tasks/data/piqa
done_by 1 $more --save wide --max-position-embeddings 512
shown="eval --load wide --seq-length 512 --task piqa --limit 2 --num-fewshot"

followed=0
# A line has the remedy in a message, the command that prints it, and the command that follows it.
while IFS='|' read -r remedy wrong right; do
  remedy=$(sed 's/^ *//; s/ *$//' <<<"$remedy")
  # shellcheck disable=SC2086
  on 1 ${wrong//SHARED/$tests/fixtures}
  check "$remedy" eval '[ $code -ne 0 ] && grep -qF -- "$remedy" err'
  # shellcheck disable=SC2086
  on 1 ${right//SHARED/$tests/fixtures}
  check "followed:$right" [ $code -eq 0 ]
  followed=$((followed + 1))
done <<E
Give its options, or --use-checkpoint-args instead of them | $more --load saved --group-query-attention --num-query-groups 2 | train --use-checkpoint-args --seq-length 16 --data-path corpus.h5 --global-batch-size 4 --train-iters 8 --eval-iters 0 --lr 0.01 --load saved
Try --no-load-optim to resume with new moments | $more --load weights | $more --load weights --no-load-optim
or --finetune to start a new run | $more --load weights | $more --load weights --finetune
Try --optimizer adam | $more --load saved --optimizer sgd | $more --load saved --optimizer adam
--no-load-optim for new moments | $more --load saved --optimizer sgd | $more --load saved --optimizer sgd --no-load-optim
or --override-opt-param-scheduler to use the command line's | $same --load saved --lr 0.02 | $same --load saved --lr 0.02 --override-opt-param-scheduler
or --use-checkpoint-opt-param-scheduler to use the checkpoint's | $same --load saved --lr 0.02 | $same --load saved --lr 0.02 --use-checkpoint-opt-param-scheduler
or --allow-new-data to continue with these | $more --load saved --seed 7 | $more --load saved --seed 7 --allow-new-data
give --num-experts | $more --disable-bias-linear --moe-use-upcycling --load dense | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --load dense
give --moe-ffn-hidden-size 64 | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --moe-ffn-hidden-size 8 --load dense | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --moe-ffn-hidden-size 64 --load dense
leave out --moe-shared-expert-intermediate-size | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --moe-shared-expert-intermediate-size 8 --load dense | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --load dense
use --backend cpu | $more --backend cuda --dtype fp64 | $more --backend cpu --dtype fp64
leave out this option, and give --finetune for a new run | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --load experts | $more --disable-bias-linear --num-experts 4 --finetune --load experts
Try a model that was trained with --disable-bias-linear | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --load saved | $more --disable-bias-linear --num-experts 4 --moe-use-upcycling --load dense
Try to build it again with --split-sentences | $bert --data-path flat.h5 | $bert --data-path bert.h5
Try to build it again with --tokenizer wordpiece --split-sentences | $bert --data-path corpus.h5 | $bert --data-path bert.h5
or --sampling shuffled | ${same/iters 8/iters 90000} --lr 0.01 --sampling sequential | ${same/iters 8/iters 90000} --lr 0.01 --sampling shuffled --dry-run
Try another --split, --split-by tokens | $more --split 1,998,1 --split-by documents | $more --split 1,998,1 --split-by tokens
Try another --json-key | corpus build --input sentences.jsonl --output x.h5 --tokenizer bytes --json-key body | corpus build --input sentences.jsonl --output x.h5 --tokenizer bytes --json-key text
or add --resume to continue it | $generate --prompts prompts.jsonl --output answers.jsonl | $generate --prompts prompts.jsonl --output answers.jsonl --resume
--chat and --interactive exclude each other: give one of them | $generate --prompts prompts.jsonl --prompt a | $generate --prompt a
leave out one or the other | $generate --prompt a --temperature 0 --top-k 4 | $generate --prompt a --top-k 4
Try --load with the folder above it | generate --load saved/step-00000004 --follow --prompt a --max-new-tokens 4 | $generate --prompt a
Try --long-examples cut | $eval --task LAMBADA --data-path long.jsonl | $eval --task LAMBADA --data-path long.jsonl --long-examples cut
Try at most 16 | $eval --task WIKITEXT103 --data-path text.txt --overlapping-eval 17 | $eval --task WIKITEXT103 --data-path text.txt --overlapping-eval 16
Give --fewshot-data | $shown 1 --data-path $piqa/valid.jsonl | $shown 1 --data-path $piqa/valid.jsonl --fewshot-data $piqa/train.jsonl
or a folder with both | $shown 1 --data-path $piqa/valid.jsonl | $shown 1 --data-path $piqa
Try a smaller number | $shown 999 --data-path $piqa | $shown 1 --data-path $piqa
give a run folder, or a file of --metrics-file | report nowhere --output page.html | report saved --output page.html
name another --output | checkpoint import --input SHARED/huggingface/gpt2 --no-tokenizer --output saved | checkpoint import --input SHARED/huggingface/gpt2 --no-tokenizer --output imported
E
check "all were followed" [ $followed -eq 30 ]
