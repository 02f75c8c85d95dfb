#!/bin/bash
# Flags of Megatron-LM's launch scripts, pasted behind `trireme train`.
repository=$(realpath "$(dirname "$0")/../..")
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
check "satisfied flags are in one line" [ "$(grep -c 'satisfied already: --DDP-impl local, .*--data-impl mmap' err)" = 1 ]
check "files of a tokenizer that are not there are in one line" \
  [ "$(grep -c -- '--vocab-file vocab.json, --merge-file merges.txt: not there, and not needed: corpus .*corpus.h5 holds' err)" = 1 ]
check "other names are in one line" grep -q 'by another name: .*--warmup .25 is --lr-warmup-fraction .25' err
field lm_loss own.jsonl >own
field lm_loss pasted.jsonl >pasted
check "a pasted line trains the same run" cmp own pasted
check "it has eight losses" [ "$(wc -l <pasted)" = 8 ]

# A file of DeepSpeed's settings gives what the line lacks.
cat >ds.json <<'END'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
 "zero_optimization": {"stage": 1, "overlap_comm": true}, "bf16": {"enabled": true}, "steps_per_print": 100}
END
done_by 1 train "${model[@]}" --data-path corpus.h5 --train-iters 8 --lr 0.01 --eval-iters 0 --warmup .25 --ffn-hidden-size 32 \
  --deepspeed --deepspeed_config ds.json --zero-stage 1 --deepspeed-activation-checkpointing --checkpoint-activations \
  --clip-grad 1 --wandb-project run --metrics-file settings.jsonl
check "flags of other logs are in one line" grep -q 'that write other logs; .*: --wandb-project run, steps_per_print 100$' err
check "the settings train the same run" cmp own <(field lm_loss settings.jsonl)
refused 2 "gradient_clipping 1.0: contradicts --clip-grad 0.5" 1 train "${run[@]}" --deepspeed_config ds.json --clip-grad 0.5

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
refused 2 "--linear-attention-freq 8: this form of attention is absent; nearest: --group-query-attention" \
  2 train "${run[@]}" --linear-attention-freq 8 --fp4-format e2m1 --ds-inference
check "the same error has the second" grep -q -- "--fp4-format e2m1: this type of 8 or 4 bits is absent; nearest: --fp8-format" err
check "the same error has the third" grep -q -- "--ds-inference: this part of DeepSpeed is absent; nearest: " err
refused 2 "there is no option --lr-warmup-iter; did you mean --lr-warmup-iters?" 1 train "${run[@]}" --lr-warmup-iter 5 --linear-attention-freq 8
check "the absent flag is in this error, too" grep -q -- "--linear-attention-freq 8: this form" err
refused 2 "--position-embedding-type relative: this form of positions is absent" 1 train "${run[@]}" --position-embedding-type relative
refused 2 "--global-batch-size 4 is not --micro-batch-size 1 x --micro-batches 2 x 1 data ranks" 1 train "${run[@]}" --micro-batches 2 --micro-batch-size 1

# A tokenizer is checked against that of the corpus.
refused 3 "--tokenizer-type GPT2BPETokenizer is not the tokenizer that corpus corpus.h5 holds: bytes" \
  1 train "${run[@]}" --tokenizer-type GPT2BPETokenizer

# The model of a checkpoint, instead of options.
llama=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --ffn-hidden-size 32 --swiglu
  --normalization RMSNorm --use-rotary-position-embeddings --hidden-dropout 0.25)
short=(--data-path corpus.h5 --global-batch-size 4 --train-iters 6 --lr 0.01 --eval-iters 0 --log-interval 1)
done_by 1 train "${llama[@]}" "${short[@]}" --save llama --exit-interval 6 --metrics-file whole.jsonl
on 1 train "${llama[@]}" "${short[@]}" --save begun --exit-interval 3
done_by 1 train --use_checkpoint_args --gelu erf --hidden-dropout 0.5 "${short[@]}" --load begun --metrics-file rest.jsonl
check "it goes on as with the options" cmp <(field lm_loss whole.jsonl | tail -3) <(field lm_loss rest.jsonl)
check "the step that is loaded is named once" [ "$(grep -c 'loading .*/begun/step-00000003' err)" -eq 1 ]
check "an option of another model is set aside with a line" grep -q "the model's swiglu is the checkpoint's true, instead of false" err
check "so is a dropout" grep -q -- "--hidden-dropout is the checkpoint's 0.25, instead of 0.5" err
refused 3 "the checkpoint holds a different model" 1 train --use-checkpoint-args --num-layers 3 "${short[@]}" --load begun
refused 2 "--use-checkpoint-args needs --load" 1 train --use-checkpoint-args "${short[@]}"

# Flags of tasks and of generation: a model is checked against the checkpoint's, what trains has no use.
echo '{"text": "the ship rows"}' >lines.jsonl
task=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --max-position-embeddings 16 --fp16 --checkpoint-activations
  --log-interval 10 --no-load-optim --no-load-rng --vocab-file vocab.json)
done_by 1 eval --task LAMBADA --valid-data lines.jsonl --load llama --batch-size 8 --model-parallel-size 1 "${task[@]}"
check "a model's flags are in one line" grep -q 'checked against the checkpoint: --num-layers 2, .*--max-position-embeddings 16$' err
check "what has no use is in one line" \
  grep -q 'ignored by this command: --checkpoint-activations, --log-interval 10, --no-load-optim$' err
refused 3 "model.layers " 1 eval --task LAMBADA --valid-data lines.jsonl --load llama --num-layers 5
refused 2 "--moe-use-upcycling: dense models are converted only by trireme train" \
  1 eval --task LAMBADA --valid-data lines.jsonl --load llama --moe-use-upcycling
done_by 1 generate --load llama --prompt the --out-seq-length 3 --greedy --seq-length 16 --recompute "${task[@]}"

# The shell expands a launch script; functions in place of its launchers pass the words on.
source <(sed -n '/^```bash/,/^```/p' "$repository/src/app/megatron/README.md" | grep -v '^```' | grep -v '^bash launch.sh')
trireme() { "$TRIREME" "$@"; }
export TRIREME=$trireme
export -f trireme
cat >run.sh <<'END'
ARGS=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --batch-size 2 --seq-length $((8 * 2)) --data-path corpus.h5)
torchrun --nproc_per_node 2 pretrain_gpt.py "${ARGS[@]}" --lr 0.01 --train-iters 1 --use-flash-attn $MORE
END
bash run.sh >out 2>err
check "exit code 0 where nothing is refused" [ $? = 0 ]
check "each flag has a line" [ "$(grep -c -- '--batch-size 2 .*works .*--micro-batch-size 2' out)" = 1 ]
mapfile -t words < <(sed -n '/^mpirun -np 2 trireme train/,/^$/p' out | sed 's/^mpirun.*//; s/ \\$//' | tr -s ' ' '\n' | grep .)
MORE='--fp4-format e2m1' bash run.sh >out 2>err
check "exit code 2 where a flag is refused" [ "$? $(tail -1 out)" = "2 1 flag is refused" ]
done_by 2 train "${words[@]}" --dry-run
check "the command that it prints is taken" grep -q "would run" err
cat >run.sh <<'END'
CMD="python -u -m torch.distributed.launch --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 16 --lr 0.01"
srun -N 1 -l --output=log bash -c "$CMD --num-attention-heads 2 --seq-length 16 --train-iters 1 --data-path corpus.h5"
srun -N 1 python pretrain_bert.py --num-layerz 2
END
bash run.sh >out 2>err
check "srun passes on a shell's command" grep -q '^mpirun -np 2 trireme train' out
check "srun passes on python's words" grep -q -- '--num-layerz .*unknown .*did you mean --num-layers' out

# The printed command passes on the words of the script when it is pasted, and executes nothing of them.
mkdir bin
printf '#!/bin/bash\nprintf "%%s\\0" "$@"\n' >bin/trireme
chmod +x bin/trireme
cat >paste.sh <<'END'
ARGS=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --lr 0.01 --train-iters 1)
NESTED='$(touch was_run)'
python pretrain_gpt.py "${ARGS[@]}" --save '$(touch was_run)' --data-path "$NESTED" "\$(touch was_run)" \
  \`touch\ was_run\` '`touch was_run`' '$LEFT' "it's" 'a"b' 'a\b' '\' 'two  words' 'line
feed' '*' '[a-z]*' '{a,b}' '~' '~/x' ~/y 'x; touch was_run' '&touch was_run&' '>was_run' '!!' 'a!x' '=ls' '#x' '船 é' %s ''
END
bash paste.sh >out 2>err
sed -n '/^trireme train/,/^$/p' out >command
(
  unset -f trireme
  PATH=$PWD/bin:$PATH
  python() { command trireme "${@:2}"; }
  bash paste.sh >expected
  for shell in bash sh "bash --norc -i"; do $shell <command 2>err | tail -z -n +2 >pasted.${#shell}; done
)
for file in pasted.2 pasted.4 pasted.14; do check "the words survive in sh, bash and bash -i: $file" cmp expected $file; done
check "nothing in them was executed" [ ! -e was_run ]
