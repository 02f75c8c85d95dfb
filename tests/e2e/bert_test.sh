#!/bin/bash
# Training a BERT from outside: the same run on every grid and in several attempts, its checkpoints, and what refuses them.
source "$(dirname "$0")/functions.sh"

make_text 1 | sed 's/the /The /g' >corpus.jsonl
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' the ship crew rows oars . {0..9} >vocab.txt
wordpiece=(--input corpus.jsonl --tokenizer wordpiece --vocab-file vocab.txt)
done_by 1 corpus build "${wordpiece[@]}" --output corpus.h5 --split-sentences
done_by 1 corpus build "${wordpiece[@]}" --output flat.h5
shape=(--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --global-batch-size 8 --lr 0.01
  --lr-decay-style constant)
pre=("${shape[@]}" --model-type bert --data-path corpus.h5 --split 80,15,5 --train-iters 6 --eval-interval 3 --eval-iters 2
  --micro-batch-size 2 --dtype fp64 --log-interval 1)
post=("${pre[@]}" --apply-residual-connection-post-layernorm)
last=step-00000006

# same_numbers FILE OTHER WHAT: two files of metrics agree.
same_numbers() {
  for name in lm_loss sop_loss grad_norm valid_loss valid_sop_loss valid_sop_accuracy test_sop_loss; do
    field $name "$1" >expected
    field $name "$2" >found
    check "$name of $3" close_to expected found 1e-10
  done
}

# The same run on every grid, in both arrangements of the residual.
done_by 1 train "${pre[@]}" --save one --metrics-file pre.jsonl
cp err log
done_by 1 train "${post[@]}" --metrics-file post.jsonl
check "the arrangements differ" [ "$(field lm_loss pre.jsonl)" != "$(field lm_loss post.jsonl)" ]
check "both tasks are in the log, with the share of right orders" \
  grep -Eq 'validation after 3: lm loss [0-9.]+, perplexity [0-9.]+, sop loss [0-9.]+, sop accuracy [0-9.]+ %' log
check "and under the same names where it trains" grep -Eq ' 3/6 \| lm loss [0-9.]+ \| sop loss [0-9.]+ \| grad norm' log
check "evaluation lines have both tasks" [ "$(field valid_sop_accuracy pre.jsonl | wc -l)" -eq 2 ]
on_grid() { # on_grid RANKS METRICS OPTION...: the run of these metrics on another grid
  local ranks=$1 name=$2
  local -n options=$name
  shift 2
  done_by "$ranks" train "${options[@]}" --metrics-file other.jsonl "$@"
  same_numbers $name.jsonl other.jsonl "$name with $*"
}
on_grid 4 pre --tp 2 --pp 2 --sequence-parallel --recompute-granularity full --recompute-method uniform
on_grid 2 post --pp 2 --schedule zero-bubble
zero1=(--use-distributed-optimizer)
on_grid 2 pre "${zero1[@]}" --save whole

# Stopped and continued: on the same grid to the last bit, on another one to rounding, and longer than planned.
on 2 train "${pre[@]}" "${zero1[@]}" --save attempts --exit-interval 4 --metrics-file attempts.jsonl
check "--exit-interval saves and leaves with 75" [ "$code $(cat attempts/LATEST)" = "75 step-00000004" ]
cp -r attempts moved
cp attempts.jsonl moved.jsonl
done_by 2 train "${pre[@]}" "${zero1[@]}" --save attempts --load attempts --metrics-file attempts.jsonl
check "two attempts are one, bit by bit" cmp <(tensors whole/$last) <(tensors attempts/$last)
check "there are tensors to compare" [ "$(tensors whole/$last | wc -l)" -gt 100 ]
done_by 4 train "${pre[@]}" --tp 2 "${zero1[@]}" --data-parallel-sharding-strategy optim_grads --load moved \
  --metrics-file moved.jsonl
same_numbers pre.jsonl moved.jsonl "two attempts, the second on four ranks in ZeRO 2,"
done_by 1 train "${pre[@]/#6/9}" --load attempts --metrics-file attempts.jsonl --override-opt-param-scheduler
check "a larger --train-iters continues a finished run" \
  [ "$(field iteration attempts.jsonl | sort -nu | paste -sd' ')" = "1 2 3 4 5 6 7 8 9" ]

# Its checkpoints.
done_by 1 checkpoint verify one
done_by 1 checkpoint inspect one
check "a checkpoint names its model and its data" \
  [ "$(grep -cE '^ *(model.kind +bert|model.norm_placement +pre|data.mask_probability +0.1)' out)" -eq 3 ]

# Types of 16 bits, samples of one segment.
field lm_loss pre.jsonl >expected
done_by 1 train "${pre[@]/#fp64/fp16}" --initial-loss-scale 4096 --metrics-file half.jsonl
field lm_loss half.jsonl >found
check "fp16 trains as fp64 does" close_to expected found 0.02
done_by 1 train "${pre[@]}" --bert-no-binary-head --metrics-file single.jsonl
check "without a binary head there is one loss" [ "$(grep -c sop single.jsonl) $(grep -c lm_loss single.jsonl)" = "0 6" ]

# Refused: once, and on all ranks.
refused 3 "flat.h5 has no sentences, which BERT's samples consist of. Try to build it again with --split-sentences" \
  2 train "${shape[@]}" --model-type bert --data-path flat.h5 --train-iters 1 --split 1 --eval-iters 0
gpt=("${shape[@]}" --data-path flat.h5 --train-iters 1 --eval-iters 0)
done_by 1 train "${gpt[@]}" --save gpt
refused 3 "model.kind               checkpoint gpt2                                 this run bert" \
  1 train "${pre[@]}" --load gpt
refused 3 "model.kind               checkpoint bert                                 this run gpt2" \
  1 train "${gpt[@]}" --load one
message="one/$last holds a BERT, which does not predict the next token. Try a checkpoint of a pretrained GPT"
refused 3 "$message" 1 generate --load one --prompt "the ship"
refused 3 "$message" 1 eval --task perplexity --load one --data-path corpus.h5
refused 3 "$message" 1 eval --task LAMBADA --load one --data-path corpus.jsonl
