#!/bin/bash
# Sequences split over ranks, through the program: moved to other grids, measured and put to use.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
run+=(--dtype fp64 --hidden-dropout 0.1 --attention-dropout 0.1)

done_by 1 train "${run[@]}" --save one --metrics-file one.jsonl
on 1 train "${run[@]}" --save moved --metrics-file moved.jsonl --exit-interval 3
on 2 train "${run[@]}" --save moved --load moved --metrics-file moved.jsonl --context-parallel-size 2 --exit-interval 6
check "a run on two context ranks stops before its end" [ $code -eq 75 ]
done_by 1 train "${run[@]}" --save moved --load moved --metrics-file moved.jsonl
for name in lm_loss grad_norm; do
  check "$name of the run that was moved agrees with one rank's" close_to <(field $name one.jsonl) <(field $name moved.jsonl) 1e-10
done

used_on_two_ranks moved --cp --cp
refused 4 "(--micro-batch-size 2147483647 --seq-length 16) at least" \
  1 eval --load moved --data-path corpus.h5 --micro-batch-size 2147483647

done_by 2 train "${run[@]}" --cp 2 --dry-run
check "the grid is printed" grep -q "2 ranks = tensor 1 x context 2 x data 1 x pipeline 1" err
