#!/bin/bash
# Sequences split over ranks, through the program: moved to other grids, measured, put to use, refused.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
run+=(--dtype fp64 --hidden-dropout 0.1 --attention-dropout 0.1)

done_by 1 train "${run[@]}" --save one --metrics-file one.jsonl
on 2 train "${run[@]}" --save moved --metrics-file moved.jsonl --cp 2 --exit-interval 4
check "a run on two context ranks stops half-way" [ $code -eq 75 ]
done_by 1 train "${run[@]}" --save moved --load moved --metrics-file moved.jsonl
on 1 train "${run[@]}" --save back --metrics-file back.jsonl --exit-interval 4
done_by 2 train "${run[@]}" --save back --load back --metrics-file back.jsonl --context-parallel-size 2
for attempt in moved back; do
  for name in lm_loss grad_norm; do
    field $name one.jsonl >one.numbers
    field $name $attempt.jsonl >$attempt.numbers
    check "$name of the run $attempt agrees with one rank's" close_to one.numbers $attempt.numbers 1e-10
  done
done

used_on_two_ranks moved --cp --cp
refused 4 "(--micro-batch-size 2147483647 --seq-length 16) at least" \
  1 eval --load moved --data-path corpus.h5 --micro-batch-size 2147483647

done_by 2 train "${run[@]}" --cp 2 --dry-run
check "the grid is printed" grep -q "2 ranks = tensor 1 x context 2 x data 1 x pipeline 1" err
refused 2 "2 ranks do not make a grid of tensor size 1 (--tp) x pipeline size 1 (--pp) x context size 3 (--cp)" \
  2 train "${run[@]}" --cp 3
shape=(--num-layers 4 --hidden-size 16 --num-attention-heads 4 --data-path corpus.h5 --train-iters 1 --lr 1)
refused 2 "--seq-length 18 does not divide into 4 equal chunks" 2 train "${shape[@]}" --cp 2 --seq-length 18
refused 2 "a sequence of 10 (of one context rank) does not split over 4 tensor ranks" \
  8 train "${shape[@]}" --cp 2 --tp 4 --sequence-parallel --seq-length 20
