#!/bin/bash
# Adapters of low rank: trained beside an imported model, resumed on other grids, used, merged and exchanged with PEFT.
fixtures=$(realpath "$(dirname "$0")/../fixtures")
source "$(dirname "$0")/functions.sh"

run=(--use-checkpoint-args --hidden-dropout 0 --attention-dropout 0 --seq-length 8 --mock-data --dtype fp64
  --global-batch-size 4 --lr 0.03 --lr-decay-iters 4 --log-interval 1 --eval-iters 0)
one=("${run[@]}" --train-iters 1)
run+=(--train-iters 4)
adapters=(--lora-rank 2 --lora-alpha 4)

# Training leaves the weights of the base as they were, and resumes with the same bits, on another grid to rounding.
done_by 1 checkpoint import --input "$fixtures/huggingface/llama3" --output base --no-tokenizer --dtype fp64
done_by 1 train "${run[@]}" "${adapters[@]}" --finetune --load base --save tuned --save-interval 2 --metrics-file all.jsonl
check "the log counts trained parameters" grep -q "parameters, [0-9]* of them trained" err
done_by 1 train "${one[@]}" --finetune --load base --metrics-file base.jsonl
check "adapters begin with the model's loss" \
  [ "$(field lm_loss all.jsonl | head -1)" = "$(field lm_loss base.jsonl | head -1)" ]
check "they change later ones" awk 'NR == 1 { first = $1 } END { exit !($1 < first - 1e-4) }' <(field lm_loss all.jsonl)
of_base() { tensors "$1" | grep '"model/' | grep -v lora_ | grep -o '"digest": *"[^"]*"\|"tensor": *"[^"]*"' | sort; }
check "frozen weights are saved unchanged" [ "$(of_base tuned/step-00000002)" = "$(of_base tuned/step-00000004)" ]
check "adapters are not" [ "$(tensors tuned/step-00000002)" != "$(tensors tuned/step-00000004)" ]
check "frozen weights have no moments" [ "$(tensors tuned/step-00000004 | grep adamw_ | grep -cv lora_)" -eq 0 ]
done_by 1 train "${run[@]}" --load tuned --ckpt-step 2 --save resumed --metrics-file rest.jsonl
check "a resumed run has the same losses" cmp <(field lm_loss all.jsonl | tail -2) <(field lm_loss rest.jsonl)
check "and the same state" [ "$(tensors tuned/step-00000004)" = "$(tensors resumed/step-00000004)" ]
done_by 2 train "${run[@]}" --load tuned --ckpt-step 2 --tp 2 --sequence-parallel --metrics-file tp.jsonl
check "also on two tensor ranks" close_to <(field lm_loss all.jsonl | tail -2) <(field lm_loss tp.jsonl) 1e-10
done_by 2 train "${run[@]}" --load tuned --ckpt-step 2 --pp 2 --use-distributed-optimizer --metrics-file pp.jsonl
check "and on two stages" close_to <(field lm_loss all.jsonl | tail -2) <(field lm_loss pp.jsonl) 1e-10

# Adapted and merged weights compute the same.
first_loss() { # first_loss CHECKPOINT: loss of the same tokens, in the file loss
  done_by 1 train "${one[@]}" --finetune --load "$1" --metrics-file "first.${1//\//-}.jsonl"
  field lm_loss "first.${1//\//-}.jsonl" >loss
}
first_loss tuned
cp loss adapted
done_by 1 checkpoint export --load tuned --output merged --dtype fp32
check "a merged model has no adapters" [ "$(grep -c lora_ merged/model.safetensors)" -eq 0 ]
done_by 1 checkpoint import --input merged --output merged.in --no-tokenizer --dtype fp64
first_loss merged.in
check "the merged model has the loss of the adapted one" close_to loss adapted 1e-6
echo '{"tokens": [3, 1, 4]}' >prompts.jsonl
for grid in "1 --tp 1" "2 --tp 2"; do
  # shellcheck disable=SC2086  # words
  set -- $grid
  for model in tuned merged.in; do
    done_by "$1" generate --load $model --prompts prompts.jsonl --max-new-tokens 5 --temperature 0 --output $model.$1.jsonl "${@:2}"
  done
done
check "generate applies adapters" cmp tuned.1.jsonl merged.in.1.jsonl
check "on two ranks, too" cmp tuned.1.jsonl tuned.2.jsonl

# PEFT's format, out and in.
done_by 1 checkpoint export --load tuned --output peft --lora-adapter
check "the adapter is described" grep -q '"peft_type": "LORA"' peft/adapter_config.json
check "with its layers" grep -q '"q_proj"' peft/adapter_config.json
done_by 2 checkpoint export --load tuned --output peft2 --lora-adapter
check "two ranks write the same" [ "$(data_of peft/adapter_model.safetensors)" = "$(data_of peft2/adapter_model.safetensors)" ]
done_by 1 checkpoint import --input "$fixtures/huggingface/llama3" --lora-adapter peft --output back --no-tokenizer --dtype fp64
done_by 1 checkpoint export --load back --output again --lora-adapter
check "an imported adapter is exported with the same bytes" \
  [ "$(data_of peft/adapter_model.safetensors)" = "$(data_of again/adapter_model.safetensors)" ]
first_loss back
check "it computes the same" close_to loss adapted 1e-6
done_by 1 checkpoint import --input "$fixtures/huggingface/gpt2" --lora-adapter "$fixtures/adapters/gpt2" --output gpt2 --no-tokenizer
done_by 1 checkpoint export --load gpt2 --output gpt2.peft --lora-adapter
check "GPT-2's layers are transposed" grep -q '"fan_in_fan_out": true' gpt2.peft/adapter_config.json

# Latents, experts and a shared block beside them.
done_by 1 checkpoint import --input "$fixtures/huggingface/deepseek_v2_low_rank" --output latent --no-tokenizer --dtype fp64
done_by 2 train "${run[@]}" "${adapters[@]}" --finetune --load latent --save experts --ep 2
first_loss experts
cp loss adapted
done_by 1 checkpoint export --load experts --output experts.peft --lora-adapter
check "PEFT's limit is told" grep -q "shared_experts.* leaves out their adapters" err
done_by 1 checkpoint import --input "$fixtures/huggingface/deepseek_v2_low_rank" --lora-adapter experts.peft --output experts.back \
  --no-tokenizer --dtype fp64
first_loss experts.back
check "adapters of experts come back" close_to loss adapted 1e-6
done_by 1 checkpoint export --load experts --output experts.merged --dtype fp32
done_by 1 checkpoint import --input experts.merged --output experts.in --no-tokenizer --dtype fp64
first_loss experts.in
check "and are merged" close_to loss adapted 1e-6

# Refusals.
refused 2 "give --load of its checkpoint, with --finetune" 1 train "${run[@]:1}" --num-layers 1 --hidden-size 8 \
  --num-attention-heads 2 --vocab-size 19 "${adapters[@]}"
refused 2 "--lora-rank and --optimizer muon exclude each other" 1 train "${run[@]}" "${adapters[@]}" --finetune --load base \
  --optimizer muon
refused 3 "the checkpoint holds a different model" 1 train "${run[@]}" --lora-rank 3 --load tuned
refused 2 "--lora-targets qkv,fc3 is not a list of all-linear, qkv, proj, fc1, fc2" 1 train "${run[@]}" "${adapters[@]}" \
  --lora-targets qkv fc3 --finetune --load base
refused 2 "--lora-alpha needs --lora-rank" 1 train "${run[@]}" --lora-alpha 8 --finetune --load base
refused 2 "has no adapters" 1 checkpoint export --load base --output none --lora-adapter
refused 3 "h.0.attn.c_attn is no linear layer" 1 checkpoint import --input "$fixtures/huggingface/llama3" --output wrong \
  --lora-adapter "$fixtures/adapters/gpt2" --no-tokenizer
cp -r peft dora
sed -i 's/"bias": "none"/"bias": "all", "use_dora": true/' dora/adapter_config.json
refused 3 "bias is \"all\", which is not supported; use_dora is true, which is not supported" 1 checkpoint import \
  --input "$fixtures/huggingface/llama3" --output wrong --lora-adapter dora --no-tokenizer
