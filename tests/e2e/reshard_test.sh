#!/bin/bash
# Checkpoints written again in the files of other grids, alone and by several processes, and continued from.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 4 --train-iters 8 --lr 0.01 --eval-iters 0 --dtype fp32)
step=step-00000004
grid_a=(--tp 2 --pp 2)
grid_b=(--pp 4 --use-distributed-optimizer --ddp-bucket-size 3000)

done_by 4 train "${run[@]}" "${grid_a[@]}" --metrics-file whole.jsonl
on 4 train "${run[@]}" "${grid_a[@]}" --save a --exit-interval 4
check "a run stops half way" [ $code -eq 75 ]

done_by 1 checkpoint reshard --load a --save b "${grid_b[@]}" --data-parallel-size 2
check "one process writes the files of eight ranks" [ "$(ls b/$step | grep -c '^rank-')" -eq 8 ]
check "and says that they were read again" grep -q "step 4 in 8 files, read back and complete" err
done_by 1 checkpoint verify b
done_by 3 checkpoint reshard --load a --save by_three "${grid_b[@]}" --data-parallel-size 2
check "three processes write the same files" diff -rq --exclude LATEST --exclude .lock b by_three
done_by 2 checkpoint reshard --load b/$step --save back "${grid_a[@]}"
check "on the first grid they are what its ranks wrote" cmp <(tensors a/$step) <(tensors back/$step)
done_by 2 checkpoint reshard --load a --save shards --cp 2 --data-parallel-size 2 --use-distributed-optimizer
check "context ranks share the optimizer state with the data ranks" [ "$(ls shards/$step | grep -c '^rank-')" -eq 4 ]
done_by 1 checkpoint reshard --load shards --save whole "${grid_a[@]}"
check "and it comes back from them" cmp <(tensors a/$step) <(tensors whole/$step)
done_by 1 checkpoint reshard --load a --save one
check "without a grid it is one file" [ "$(ls one/$step | paste -sd' ')" = "manifest.json rank-00000.h5" ]
done_by 1 checkpoint reshard --load one --save one --tp 4
check "a step can be replaced by itself" [ "$(ls one/$step | grep -c '^rank-')" -eq 4 ]
check "nothing is left of what it was" [ -z "$(find one -name '.tmp*' -o -name '.trash*')" ]
done_by 1 checkpoint reshard --load a --save wide --data-parallel-size 99999
check "data ranks that hold nothing take neither a file nor room" [ "$(ls wide/$step | grep -c '^rank-')" -eq 52 ]
done_by 1 checkpoint reshard --load wide --save narrow "${grid_a[@]}"
check "and the others hold all of it" cmp <(tensors a/$step) <(tensors narrow/$step)

# Training goes on from files of another grid.
done_by 4 train "${run[@]}" "${grid_a[@]}" --load b --metrics-file b.jsonl
check "a run goes on bit for bit" cmp <(field lm_loss whole.jsonl | tail -4) <(field lm_loss b.jsonl | tail -4)

# Grids that cannot be.
refused 2 "--save must be given" 1 checkpoint reshard --load a
refused 2 "4 layers do not divide into 3 pipeline stages" 2 checkpoint reshard --load a --save c --pp 3
refused 2 "--ddp-bucket-size needs --use-distributed-optimizer" 1 checkpoint reshard --load a --save c --ddp-bucket-size 9
refused 2 "the limit is 99999" 1 checkpoint reshard --load a --save c --data-parallel-size 99999 --tp 2
check "a refused one writes nothing" [ ! -e c ]
flip b/$step/rank-00003.h5 4000
refused 3 "is damaged" 2 checkpoint reshard --load b/$step --save c
