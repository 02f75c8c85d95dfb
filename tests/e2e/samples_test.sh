#!/bin/bash
# Training by samples, with batches that grow, and on fewer data ranks than planned.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
job=("${model[@]}" --data-path corpus.h5 --micro-batch-size 1 --global-batch-size 8 --train-samples 62 --lr 0.01 --dtype fp64
  --lr-warmup-samples 10 --lr-decay-style cosine --min-lr 0.001 --eval-iters 1 --eval-interval 4)
ramp=("${job[@]}" --rampup-batch-size 2 2 24)

done_by 1 train "${ramp[@]}" --metrics-file alone.jsonl
check "batches grow, and what is left at the end is no batch" \
  [ "$(field consumed_samples alone.jsonl | paste -sd' ')" = "2 4 6 8 12 16 22 28 36 44 52 60" ]
check "the learning rate follows the samples" \
  [ "$(field learning_rate alone.jsonl | head -5 | paste -sd' ')" = "$(awk 'BEGIN {
    printf "%.17g %.17g %.17g %.17g", 0.01 * 0.2, 0.01 * 0.4, 0.01 * 0.6, 0.01 * 0.8
    printf " %.17g", 0.001 + 0.009 * 0.5 * (1 + cos(atan2(0, -1) * 2 / 52)) }')" ]

# Stopped in the middle of the ramp: the same bits.
for attempt in 1 2 3; do
  on 1 train "${ramp[@]}" --save saved --load saved --load-or-init --exit-interval 5 --metrics-file attempts.jsonl
  check "attempt $attempt ends as it should" [ $code -eq $((attempt < 3 ? 75 : 0)) ]
done
results() { sed 's/, "elapsed_ms.*//' "$1"; } # contents of a file of metrics without times
check "in three attempts a run computes what it does in one" cmp <(results alone.jsonl) <(results attempts.jsonl)
on 1 train "${ramp[@]}" --load saved
check "past its last sample a run has nothing to do" grep -q "nothing to do: 12 of 12 iterations" err

# On another grid, and before it runs.
done_by 2 train "${ramp[@]}" --metrics-file two.jsonl
field lm_loss alone.jsonl >alone.loss
field lm_loss two.jsonl >two.loss
check "two data ranks compute the same" close_to two.loss alone.loss 1e-10
done_by 2 train "${ramp[@]}" --dry-run
check "--dry-run shows the batches to come" [ "$(grep -o '[0-9]* iterations of [0-9]* samples' err | paste -sd,)" = \
  "4 iterations of 2 samples,2 iterations of 4 samples,2 iterations of 6 samples,4 iterations of 8 samples" ]
check "and how many they are" grep -q "12 iterations would run" err

# Three data ranks where the batches were made for two.
refused 2 "--global-batch-size 8 is not a multiple of --micro-batch-size 1 times 3 data ranks" 3 train "${job[@]}"
done_by 3 train "${job[@]}" --decrease-batch-size-if-needed --metrics-file fewer.jsonl --save fewer --exit-interval 100
check "--decrease-batch-size-if-needed takes 6 samples instead of 8" \
  [ "$(field consumed_samples fewer.jsonl | paste -sd' ')" = "6 12 18 24 30 36 42 48 54 60" ]
check "and says so once" [ "$(grep -c '8 becomes 6' err)" -eq 1 ]
on 2 train "${job[@]}" --save half --exit-interval 4
done_by 3 train "${job[@]}" --decrease-batch-size-if-needed --load half --metrics-file after.jsonl
check "a run goes on with fewer data ranks from the sample it has reached" \
  [ "$(field consumed_samples after.jsonl | paste -sd' ')" = "38 44 50 56 62" ]

# A blend whose weights change in the middle of a batch: read alike in one attempt, and in three on other grids.
make_corpus code 2
make_corpus prose 3
printf '3 corpus.h5\n1 code.h5\nfrom sample 21\n2 epochs prose.h5\ncode.h5\n' >blend.txt
mixed=("${ramp[@]/#--data-path/--blend}")
mixed=("${mixed[@]/#corpus.h5/blend.txt}")
done_by 1 train "${mixed[@]}" --metrics-file mixed.jsonl
check "the log has what is read of each corpus in each stage" [ "$(grep -cE \
  'from sample (0|21):|0.7500 +16 .* corpus.h5|0.2500 +5 .* code.h5|0.66.. +27 .* prose.h5' err)" = 5 ]
for attempt in 1 2 3; do
  on $((1 + attempt % 2)) train "${mixed[@]}" --save mixed --load mixed --load-or-init --exit-interval 5 --metrics-file lives.jsonl
done
check "the last attempt ends the run" [ $code -eq 0 ]
field lm_loss mixed.jsonl >mixed.loss
field lm_loss lives.jsonl >lives.loss
check "the stages of a blend do not depend on attempts and grids" close_to lives.loss mixed.loss 1e-10
printf '3 corpus.h5\n1 code.h5\nfrom sample 22\n2 epochs prose.h5\ncode.h5\n' >blend.txt
refused 3 "this run from 22: 0" 1 train "${mixed[@]}" --load mixed

# Norms and rates of every update, in the metrics and the log.
observed=("${job[@]}" --log-params-norm --log-num-zeros-in-grad --decoupled-lr 0.02 --weight-decay-incr-style linear
  --start-weight-decay 0 --end-weight-decay 0.62)
done_by 1 train "${observed[@]}" --metrics-file observed.jsonl
check "the log has norm and zeros" [ "$(grep -c '| params norm [0-9.]* | num zeros [0-9]* |' err)" -eq 7 ]
check "the weight decay grows by samples" [ "$(field weight_decay observed.jsonl | head -2 | paste -sd' ')" = \
  "$(awk 'BEGIN { printf "%.17g %.17g", 0.62 * (8 / 62), 0.62 * (16 / 62) }')" ]
check "the embedding has its own learning rate" \
  [ "$(field decoupled_learning_rate observed.jsonl | head -1)" = "$(awk 'BEGIN { printf "%.17g", 0.02 * 0.8 }')" ]

# Corpora of each split, and validation sets with a loss each.
paths=("${job[@]/#--data-path/--train-data-path}" --valid-data-path code.h5 --test-data-path prose.h5)
own=("${paths[@]}" --valid-set code=code.h5 mix=0.7 code.h5 0.3 prose.h5)
done_by 1 train "${own[@]}" --metrics-file own.jsonl
of_set() { grep "\"valid_set\": \"$1\"" "$2" | field valid_loss /dev/stdin; } # of_set NAME FILE
check "each evaluation has a loss for each set" [ "$(grep valid_loss own.jsonl | field iteration /dev/stdin | paste -sd' ')" = "4 4 4 7 7 7" ]
check "a set is measured as the split is" cmp <(grep -v valid_set own.jsonl | field valid_loss /dev/stdin) <(of_set code own.jsonl)
check "a blend is another set" [ "$(of_set mix own.jsonl | head -1)" != "$(of_set code own.jsonl | head -1)" ]
done_by 1 train "${job[@]:0:${#job[@]}-4}" --split 1 --eval-iters 0 --metrics-file whole.jsonl
done_by 1 train "${job[@]}" --valid-set all=corpus.h5 --split-valid-sets --metrics-file part.jsonl
check "a set that is split is the validation split" cmp <(grep -v valid_set part.jsonl | field valid_loss /dev/stdin) <(of_set all part.jsonl)
check "training reads all of its corpus" cmp <(field lm_loss own.jsonl) <(field lm_loss whole.jsonl)
on 2 train "${own[@]}" --save own --exit-interval 4
done_by 1 train "${paths[@]}" --valid-set code=prose.h5 --load own --metrics-file rest.jsonl
check "a run may go on with other validation sets, and says so" grep -q -- "--valid-set was code=.* in the checkpoint, now code=" err
check "its losses stay" close_to <(field lm_loss own.jsonl | tail -3) <(field lm_loss rest.jsonl) 1e-10
make_bpe_files
done_by 1 corpus build --input prose.jsonl --output bpe.h5 --tokenizer gpt2 --vocab-file encoder.json --merge-file vocab.bpe
refused 3 "their ids mean different things" 2 train "${paths[@]}" --valid-set code=bpe.h5

# Synthetic data: the same on every grid and in two attempts, and of use in generation.
mock=("${model[@]}" --mock-data --vocab-size 100 --global-batch-size 4 --train-iters 8 --lr 0.01 --eval-iters 1 --dtype fp64)
done_by 1 train "${mock[@]}" --metrics-file mock.jsonl
on 4 train "${mock[@]}" --tp 2 --pp 2 --save mock --exit-interval 5 --metrics-file grid.jsonl
done_by 2 train "${mock[@]}" --load mock --save mock --metrics-file grid.jsonl
for name in lm_loss valid_loss test_loss; do
  check "$name of synthetic data is the same on two grids" close_to <(field $name mock.jsonl) <(field $name grid.jsonl) 1e-10
done
refused 3 "the checkpoint's run read other data" 1 train "${mock[@]}" --load mock --seed 5
done_by 1 generate --load mock --prompt "1 2 3" --max-new-tokens 3
check "generate goes on from ids" grep -qE '^1 2 3[0-9 ]+$' out
check "synthetic data leave no folder" [ ! -e index-cache ]

# Each epoch in an order of its own, stopped within one, on another grid, and for longer.
head -4 corpus.jsonl >small.jsonl
done_by 1 corpus build --input small.jsonl --output small.h5 --tokenizer bytes --append-eod
cyclic=("${model[@]}" --data-path small.h5 --split 1 --dataloader-type cyclic --global-batch-size 8 --lr 0.01
  --lr-decay-style constant --eval-iters 0 --dtype fp64)
done_by 1 train "${cyclic[@]}" --train-iters 20 --metrics-file cyclic.jsonl
on 2 train "${cyclic[@]}" --train-iters 14 --save cyclic --exit-interval 9 --metrics-file attempts.jsonl
done_by 4 train "${cyclic[@]}" --tp 2 --train-iters 20 --load cyclic --override-opt-param-scheduler \
  --metrics-file attempts.jsonl
check "cyclic epochs are those of one attempt on one rank" close_to <(field lm_loss cyclic.jsonl) <(field lm_loss attempts.jsonl) 1e-10
done_by 1 train "${cyclic[@]/#cyclic/single}" --train-iters 20 --metrics-file single.jsonl
check "single is another order" [ "$(field lm_loss cyclic.jsonl | tail -1)" != "$(field lm_loss single.jsonl | tail -1)" ]
refused 3 "data.sampling" 1 train "${cyclic[@]/#cyclic/single}" --train-iters 20 --load cyclic

# Fill in the middle, with marks beyond the tokenizer's vocabulary: the same on another grid and in two attempts.
fim=("${model[@]}" --data-path corpus.h5 --vocab-size 260 --global-batch-size 8 --train-iters 8 --lr 0.01 --eval-iters 1
  --dtype fp64 --fim-rate 0.7 --fim-prefix-token 257 --fim-middle-token 258 --fim-suffix-token 259)
done_by 1 train "${fim[@]}" --metrics-file fim.jsonl
on 4 train "${fim[@]}" --tp 2 --save fim --exit-interval 5 --metrics-file grid.jsonl
done_by 2 train "${fim[@]}" --pp 2 --load fim --metrics-file grid.jsonl
check "documents are rearranged alike on two grids" close_to <(field lm_loss fim.jsonl) <(field lm_loss grid.jsonl) 1e-10
refused 3 "data.fim" 1 train "${fim[@]}" --fim-spm-rate 1 --load fim
refused 3 "data.fim" 1 train "${fim[@]:0:22}" --dtype fp64 --load fim
refused 2 "the tokenizer bytes has no token '<fim_prefix>'" 2 train "${job[@]}" --fim-rate 0.5
