#!/bin/bash
# Flags of Megatron-LM's launch scripts, pasted behind `trireme train`.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1

# A line in the words of 2019 and 2020, of Megatron-LLM and of today trains as the same run in this program's words.
done_by 1 train "${run[@]}" --micro-batch-size 2 --lr-warmup-fraction 0.25 --ffn-hidden-size 32 --bf16 \
  --recompute-granularity full --metrics-file own.jsonl
done_by 1 train --num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --log-interval 1 \
  --train-data corpus.h5 --batch-size 2 --num-microbatches-in-minibatch 2 --train_iters=8 --lr 0.01 --eval-iters -1 \
  --warmup .25 --intermediate-size 32 --bf16 --checkpoint-activations --split "'969,30,1'" --metrics_file pasted.jsonl \
  --DDP-impl local --distributed-backend nccl --use_flash_attn --num-workers 2 --no-masked-softmax-fusion --data-impl mmap \
  --vocab-file vocab.json --merge-file merges.txt
check "satisfied flags are in one line" [ "$(grep -c 'satisfied already: --DDP-impl local, .*--merge-file merges.txt' err)" = 1 ]
check "other names are in one line" grep -q 'by another name: .*--warmup .25 is --lr-warmup-fraction .25' err
field lm_loss own.jsonl >own
field lm_loss pasted.jsonl >pasted
check "a pasted line trains the same run" cmp own pasted
check "it has eight losses" [ "$(wc -l <pasted)" = 8 ]

# A dry run of a Llama's flags.
done_by 2 train --use-mcore-models --transformer-impl transformer_engine --num-layers 4 --hidden-size 32 \
  --num-attention-heads 4 --group-query-attention --num-query-groups 2 --ffn-hidden-size 64 --seq-length 16 \
  --max-position-embeddings 16 --position-embedding-type rope --rotary-base 500000 --normalization rmsnorm --swiglu \
  --no-bias-swiglu-fusion --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0.0 \
  --hidden-dropout 0.0 --bf16 --micro-batch-size 1 --global-batch-size 4 --train-samples 3_000 --lr-decay-samples 2_000 \
  --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --tensor-model-parallel-size 2 --sequence-parallel \
  --use-distributed-optimizer --overlap-grad-reduce --grad-reduce-in-bf16 --data-path corpus.h5 --split 99,1,0 \
  --num-workers 1 --no-create-attention-mask-in-dataloader --ckpt-format torch_dist --attention-backend auto \
  --manual-gc --no-load-rng --dry-run
check "a Llama's flags start a dry run of 750 iterations" grep -q "750 iterations would run" err

# All absent flags in one error, beside mistakes.
refused 2 "--num-experts 8: layers of experts are absent; nearest: a dense model" \
  2 train "${run[@]}" --num-experts 8 --fp8-format hybrid --deepspeed
check "the same error has the second" grep -q -- "--fp8-format hybrid: numbers of 8 and 4 bits are absent; nearest: --bf16" err
check "the same error has the third" grep -q -- "--deepspeed: DeepSpeed is absent; nearest: " err
refused 2 "there is no option --lr-warmup-iter; did you mean --lr-warmup-iters?" 1 train "${run[@]}" --lr-warmup-iter 5 --num-experts 8
check "the absent flag is in this error, too" grep -q -- "--num-experts 8: layers" err
refused 2 "--position-embedding-type alibi: ALiBi" 1 train "${run[@]}" --position-embedding-type alibi
refused 2 "--micro-batches and --global-batch-size exclude each other" 1 train "${run[@]}" --micro-batches 2

# A launch script is read, not run.
cat >run.sh <<'END'
touch was_run
ARGS=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --batch-size 2 --seq-length 16 --data-path corpus.h5)
torchrun --nproc_per_node 2 pretrain_gpt.py "${ARGS[@]}" --lr 0.01 --train-iters 1 --use-flash-attn
END
done_by 2 train --megatron-script run.sh
check "one rank prints the report" [ "$(grep -c -- '--batch-size 2 .*works .*--micro-batch-size 2' out)" = 1 ]
check "the script was not run" [ ! -e was_run ]
sed -i 's/--use-flash-attn/--use-flash-attn --fp8-format hybrid/' run.sh
on 1 train --megatron-script run.sh
check "exit code 2 where a flag is refused" [ "$code $(tail -1 out)" = "2 1 flags are refused" ]
refused 2 "--megatron-script takes no other option" 1 train --megatron-script run.sh --lr 1
