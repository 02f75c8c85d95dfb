#!/bin/bash
# The options of the model: stored with its checkpoints, checked against them on resuming, used by eval and generate.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
llama=(--normalization RMSNorm --position-embedding-type rope --rotary-base 500 --rotary-percent 0.5 --swiglu
  --ffn-hidden-size 32 --group-query-attention --num-query-groups 2 --untie-embeddings-and-output-weights
  --disable-bias-linear --kv-channels 8 --add-qkv-bias --apply-layernorm-1p --qk-layernorm --use-rope-scaling
  --rotary-seq-len-interpolation-factor 2 --window-size 5,0 --window-attn-skip-freq 2)
run+=(--dtype fp64 --hidden-dropout 0.1 --attention-dropout 0.1)

done_by 1 train "${run[@]}" "${llama[@]}" --save one --metrics-file one.jsonl
on 2 train "${run[@]}" "${llama[@]}" --save moved --metrics-file moved.jsonl --pp 2 --exit-interval 4
done_by 2 train "${run[@]}" "${llama[@]}" --save moved --load moved --metrics-file moved.jsonl --tp 2
for name in lm_loss grad_norm; do
  field $name one.jsonl >one.numbers
  field $name moved.jsonl >moved.numbers
  check "$name of two lives on two grids agrees with one rank's" close_to one.numbers moved.numbers 1e-10
done
first=$(head -1 one.jsonl | field lm_loss /dev/stdin)
check "the loss falls" awk "BEGIN { exit !($(tail -1 one.jsonl | field lm_loss /dev/stdin) < 0.9 * $first) }"

# A checkpoint stores its model.
used_on_two_ranks one --tp --pp

# Experts begin as copies of a dense model's blocks; weights that sum to 1 make its forward theirs.
experts=("${llama[@]}" --num-experts 4 --moe-use-upcycling --load one)
done_by 1 train "${run[@]}" "${llama[@]}" --finetune --load one --metrics-file dense.jsonl
done_by 2 train "${run[@]}" "${experts[@]}" --expert-model-parallel-size 2 --metrics-file moe.jsonl --save moe
check "the first loss of upcycled experts is the dense model's" \
  close_to <(field lm_loss dense.jsonl | head -1) <(field lm_loss moe.jsonl | head -1) 1e-12
check "later ones are not" [ "$(field lm_loss dense.jsonl | tail -1)" != "$(field lm_loss moe.jsonl | tail -1)" ]
refused 3 "the model in moe has experts" 1 train "${run[@]}" "${experts[@]/%one/moe}"
refused 3 "the checkpoint holds a different model" 1 train "${run[@]}" "${experts[@]}" --parallel-residual

# Another model is refused. (The tests of the table of fields try each field.)
without() { # without OPTION [VALUE]: prints the options of the run except this one
  local list=" ${llama[*]} "
  echo "${list/ $* / }"
}
# shellcheck disable=SC2046  # options are words
refused 3 "the checkpoint holds a different model
model.swiglu" 1 train "${run[@]}" $(without --swiglu) --load one
# shellcheck disable=SC2046
done_by 1 train "${run[@]}" $(without "--position-embedding-type rope") --use-rotary-position-embeddings --load one
check "two names of rotary positions mean the same" grep -q "nothing to do: 8 of 8 iterations" err

# A preset's vocabulary, positions and dropout hold, and are said.
done_by 1 train --model llama2-7b --num-layers 2 --hidden-size 16 --num-attention-heads 4 --ffn-hidden-size 32 \
  --data-path corpus.h5 --seq-length 16 --lr 1 --train-iters 1 --dry-run
check "llama2-7b has its vocabulary and positions, and no dropout" grep -q \
  "llama2-7b sets vocab-size 32000, max-position-embeddings 4096, hidden-dropout 0, attention-dropout 0$" err

# The log describes experts in one clause.
done_by 1 train --num-layers 4 --hidden-size 16 --num-attention-heads 4 --swiglu --ffn-hidden-size 32 --disable-bias-linear \
  --num-experts 4 --moe-layer-freq "[0,1]*2" --moe-ffn-hidden-size 8 --moe-shared-expert-intermediate-size 24 \
  --moe-router-score-function sigmoid --moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type seq_aux_loss \
  --data-path corpus.h5 --seq-length 16 --lr 1 --train-iters 1 --dry-run
check "experts are described" grep -qF \
  ", 4 experts in layers 0101, 2 a token of width 8, a shared one of width 24, sigmoid scores, balance loss x 0.01 (seq_aux_loss)" err
check "so are the parameters that compute a token" grep -qE ": [0-9]+ parameters, [0-9]+ of them active" err

# eval takes the sequence length of the training, not all positions.
done_by 1 train "${run[@]}" --max-position-embeddings 64 --save longer
for length in "" 16 64; do
  # shellcheck disable=SC2086  # words
  done_by 1 eval --load longer --data-path corpus.h5 ${length:+--seq-length $length}
  field loss out >longer.${length:-default}
done
check "eval's windows are as long as the samples of the training" cmp longer.default longer.16
check "and may be longer" [ "$(cat longer.16)" != "$(cat longer.64)" ]

# The log of a Llama with many options, one of a file, and many corpora.
echo "adam-beta2 = 0.95" >many.ini
done_by 2 train --config many.ini "${model[@]}" "${llama[@]}" --vocab-size 300 --max-position-embeddings 64 --micro-batch-size 2 \
  --global-batch-size 32 --train-samples 128 --rampup-batch-size 4 4 120 --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine \
  --lr-warmup-fraction 0.1 --adam-eps 1e-5 --weight-decay 0.1 --init-method-std 0.01 --bf16 --tp 2 --sequence-parallel \
  --recompute-granularity selective --cross-entropy-chunks 2 --use-distributed-optimizer --overlap-grad-reduce \
  --data-path 0.2 corpus.h5 0.2 corpus.h5 0.2 corpus.h5 0.2 corpus.h5 0.2 corpus.h5 --split 90,5,5 --eval-interval 50 \
  --eval-iters 1 --save many --save-interval 10 --keep-last 2 --async-save --save-retain-interval 20 --metrics-file many.jsonl \
  --seed 42 --log-params-norm --log-num-zeros-in-grad --tensorboard-dir curves --log-throughput --mfu-peak 1 --log-progress \
  --timing-log-level 1 --exit-interval 1000 --check-weight-hash-across-dp-replicas-interval 100 --data-check full \
  --distributed-timeout-minutes 5
head_is_short "many options"
check "a file's options are there" grep -qE -- " --adam-beta2 0.95( |$)" err
check "corpora beyond four are counted" grep -q "\.\.\. 2 more corpora; --log-options lists them" err
done_by 1 train "${run[@]}" --log-options --dry-run
check "--log-options lists all options" grep -q "^[0-9:]*   adam-beta2 \.* 0.999$" err
