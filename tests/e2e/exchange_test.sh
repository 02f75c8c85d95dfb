#!/bin/bash
# Checkpoints in and out: models of transformers (tests/fixtures/huggingface) on several grids, and what is refused.
fixtures=$(realpath "$(dirname "$0")/../fixtures/huggingface")
source "$(dirname "$0")/functions.sh"

# A model that was imported trains, also on several ranks, and is exported again with the same bytes.
done_by 1 checkpoint import --input "$fixtures/llama3" --output in --no-tokenizer --dtype fp64
check "no tokenizer is no warning here" [ "$(grep -c 'there is no tokenizer' err)" -eq 0 ]
options=$(sed -n 's/.*train it with //p' err)
done_by 3 checkpoint import --input "$fixtures/llama3/model.safetensors" --output in3
check "without a tokenizer ids are taken as they are" grep -q "there is no tokenizer beside" err
done_by 1 checkpoint verify in3
done_by 1 checkpoint export --load in --output exported
done_by 3 checkpoint export --load in3 --output exported3
check "export of import has the same bytes on one rank and on three" \
  [ "$(data_of exported/model.safetensors)" = "$(data_of exported3/model.safetensors)" ]
check "a checkpoint of three ranks has three files" [ "$(ls in3/step-00000000/*.h5 | wc -l)" -eq 3 ]
for file in config.json generation_config.json README.md; do check "$file is there" [ -s "exported/$file" ]; done
done_by 1 checkpoint export --load in --output exported
check "an export over itself removes nothing" [ "$(grep -c 'removed' err)" -eq 0 ]
check "the card names the program's commit" grep -q "Exported by Trireme .*commit" exported/README.md
done_by 1 checkpoint import --input exported --output again
done_by 1 checkpoint export --load again --output rounded --dtype bf16
check "bf16 takes half the bytes" [ "$(stat -c %s rounded/model.safetensors)" -lt "$(stat -c %s exported/model.safetensors)" ]
check "config.json names the type" grep -q '"dtype": "bfloat16"' rounded/config.json
for grid in "1" "2 --tp 2"; do
  # shellcheck disable=SC2086  # words
  set -- $grid
  # shellcheck disable=SC2086
  done_by "$1" train $options --hidden-dropout 0 --attention-dropout 0 --seq-length 8 --mock-data --dtype fp64 \
    --global-batch-size 4 --train-iters 2 --lr 0.001 --log-interval 1 --metrics-file "metrics${grid// /}" "${@:2}"
done
loss() { sed -n 's/.*"lm_loss": \([0-9.]*\).*/\1/p' "$1" | head -1 >"$1.loss"; }
for metrics in metrics1 metrics2--tp2; do loss "$metrics"; done
check "training begins with the same loss on two tensor ranks" close_to metrics2--tp2.loss metrics1.loss 1e-10
check "random weights have a loss" [ -s metrics1.loss ]

# The command that import prints trains a model of every family.
families=0
cp -r "$fixtures" families.in # a BERT's samples need its tokenizer
for folder in families.in/bert*/; do
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' a b c d e . '##s' >"$folder/vocab.txt"
done
for _ in {1..40}; do echo '{"text": "A b c. B d a e. C a b. D e c b. A a. B c d."}'; done >sentences.jsonl
done_by 1 corpus build --input sentences.jsonl --output sentences.h5 --tokenizer wordpiece --vocab-file families.in/bert/vocab.txt --split-sentences
for folder in families.in/*/; do
  family=families/$(basename "$folder") input=("$folder" --no-tokenizer)
  data=--mock-data
  case $family in */bert*) data="--data-path sentences.h5" input=("$folder") ;; esac
  done_by 1 checkpoint import --input "${input[@]}" --output "$family" --dtype fp64
  printed=$(sed -n 's/.*train it with //p' err)
  case "$(sed -n 's/.*measure it with //p' err)" in
  "trireme eval --task "*" --load $family --data-path FILE") continue ;; # a model with a head
  esac
  [ -n "$printed" ] || continue # no task has two choices
  eval "done_by 1 train $printed $data --global-batch-size 2 --train-iters 1 --lr 0.01 --eval-iters 0 --dtype fp64"
  check "$family trains by the printed command, without dropout like the model" \
    [ "$(grep -c ' 1/1 | \|dropout 0 (0 in attention)' err)" = 2 ]
  families=$((families + 1))
done
check "families are trained" [ $families -ge 30 ]

# An imported model keeps its class, also where another class computes the same.
done_by 1 checkpoint import --input "$fixtures/phi3" --output phi3 --no-tokenizer --dtype fp32
done_by 2 checkpoint export --load phi3 --output phi3-out
check "a Phi-3 stays one" grep -q '"Phi3ForCausalLM"' phi3-out/config.json
done_by 1 checkpoint import --input phi3-out --output phi3-again --no-tokenizer --dtype fp32
sed 's/"rope_type": "default"/"rope_type": "longrope"/' "$fixtures/phi3/config.json" >phi3-out/config.json
refused 3 "rope_type is 'longrope': Phi3ForCausalLM is supported" 1 checkpoint import --input phi3-out --output none

# weights DIR PATTERN: digests of the tensors whose names match, at least ten.
weights() {
  sed -n 's/.*"digest":"\([^"]*\)".*"tensor":"model\/\([^"]*\)".*/\2 \1/p' "$1/step-00000000/manifest.json" | grep -E "^($2)" |
    sort | awk '{ print } END { if (NR < 10) print "too few in '"$1"'" }'
}

# DeepSeek-V3's module for further tokens has the same tensors in the export, copies included.
done_by 2 checkpoint import --input "$fixtures/deepseek_v3_ahead" --output ahead --no-tokenizer --dtype fp32
done_by 2 checkpoint export --load ahead --output ahead-out
check "config.json has the module" grep -q '"num_nextn_predict_layers": 1' ahead-out/config.json
tensors() { grep -ao '"model\.layers\.2\.[a-z_.0-9]*"' "$1/model.safetensors" | sort; }
check "the module has DeepSeek-V3's names" [ "$(tensors ahead-out)" = "$(tensors "$fixtures/deepseek_v3_ahead")" ]
done_by 1 checkpoint import --input ahead-out --output ahead-again --no-tokenizer --dtype fp32
check "the module has the same bits" [ "$(weights ahead-again "mtp|h.2|wte|lm_head")" = "$(weights ahead "mtp|h.2|wte|lm_head")" ]

# Other classes of BERT are parts of one; what their files lack gets initial weights.
for name in masked base tokens; do
  done_by 2 checkpoint import --input "$fixtures/bert_$name" --output "bert_$name" --no-tokenizer --dtype fp64
  cp err "err.$name"
  done_by 1 checkpoint export --load "bert_$name" --output "bert_$name-out"
done
check "a BertForMaskedLM lacks the pooler and the order" grep -q "BertForMaskedLM lacks .* initial weights: pooler, sop" err.masked
check "a BertModel has no heads" grep -q "initial weights: mlm, sop" err.base
check "the head of a token classification is left out" grep -q "left out: classifier.weight, classifier.bias" err.tokens
done_by 2 checkpoint import --input "$fixtures/bert" --output bert_whole --no-tokenizer --dtype fp64
for parts in "masked emb|h|mlm" "base emb|h|pooler" "tokens emb|h"; do
  check "a bert_${parts% *} has its parts of a BERT" \
    [ "$(weights "bert_${parts% *}" "${parts#* }")" = "$(weights bert_whole "${parts#* }")" ]
done
for name in masked base; do
  done_by 1 checkpoint import --input "bert_$name-out" --output "bert_$name-again" --no-tokenizer --dtype fp64
  check "the export of bert_$name has its tensors" [ "$(weights "bert_$name-again" .)" = "$(weights "bert_$name" .)" ]
done
check "without its head it is a BertModel" grep -q '"BertModel"' bert_tokens-out/config.json
cp "$fixtures/bert/model.safetensors" bert_masked-out/
done_by 1 checkpoint import --input bert_masked-out --output bert_full --no-tokenizer
check "all tensors of a pretrained BERT are taken" [ "$(grep -c 'initial weights' err)" = 0 ]
cp -r "$fixtures/bert_base" bert_pooled
sed -i 's/BertModel/BertForTokenClassification/' bert_pooled/config.json
done_by 1 checkpoint import --input bert_pooled --output bert_pooled-ours --no-tokenizer
check "a pooler is taken where it is there" grep -q "initial weights: mlm, sop" err
# The last 7 of the 19 rows are padding: the tokens that the tokenizer adds get rows of their own, which no export has.
done_by 1 checkpoint import --input families.in/bert --output bert_cut --vocab-size 12
done_by 1 checkpoint export --load bert_cut --output bert_cut-out
check "a BERT without padding has its tokens" grep -q '"vocab_size": 12,' bert_cut-out/config.json
refused 2 "is a checkpoint of this program: name another folder" 1 checkpoint export --load bert_cut --output bert_cut/step-00000000
refused 2 "--vocab-size 11 is less than the 12 tokens of the tokenizer" 1 checkpoint import --input families.in/bert --output none --vocab-size 11
refused 2 "--eod-token [SEP]: only a BPE or Unigram" 1 checkpoint import --input families.in/bert --output none --eod-token "[SEP]"

# Weights of torch.save, in several files.
done_by 2 checkpoint import --input "$fixtures/gpt2_pickled" --output pickled --no-tokenizer
done_by 1 checkpoint import --input "$fixtures/gpt2" --output plain --no-tokenizer
for name in pickled plain; do done_by 1 checkpoint export --load "$name" --output "$name-out"; done
check "pytorch_model.bin has the same weights" \
  [ "$(data_of pickled-out/model.safetensors)" = "$(data_of plain-out/model.safetensors)" ]
cp -r "$fixtures/gpt2_pickled" torn
sed -i 's/"transformer.wte.weight"/"transformer.wtf.weight"/' torn/pytorch_model.bin.index.json
refused 3 "has the tensor 'transformer.wte.weight', which" 1 checkpoint import --input torn --output "no torn"
printf "%400s" x | dd of=torn/pytorch_model-00001-of-00002.bin bs=1 seek=5000 conv=notrunc status=none
cp "$fixtures/gpt2_pickled/pytorch_model.bin.index.json" torn/
refused 3 "torn/pytorch_model-00001-of-00002.bin" 1 checkpoint import --input torn --output "no torn"

# A Mistral without windows.
mkdir windowless
sed 's/"sliding_window": 3/"sliding_window": null/' "$fixtures/mistral/config.json" >windowless/config.json
cp "$fixtures/mistral/model.safetensors" windowless/
done_by 1 checkpoint import --input windowless --output windowless-ours --no-tokenizer
check "a Mistral without windows is a Llama" grep -q '"model.kind": *"llama"' windowless-ours/step-00000000/manifest.json
done_by 1 checkpoint export --load windowless-ours --output windowless-out
check "and exported as it was" grep -q '"sliding_window": null' windowless-out/config.json

# A model with experts trains on any grid, and is exported with the same bytes.
done_by 2 checkpoint import --input "$fixtures/qwen3_moe" --output experts --no-tokenizer --dtype fp64
options=$(sed -n 's/.*train it with //p' err)
done_by 1 checkpoint export --load experts --output experts-out
check "a Qwen3-MoE stays one" grep -q '"Qwen3MoeForCausalLM"' experts-out/config.json
done_by 1 checkpoint import --input experts-out --output experts-again --no-tokenizer
done_by 2 checkpoint export --load experts-again --output experts-twice
check "export of import has the same bytes of experts" \
  [ "$(data_of experts-out/model.safetensors)" = "$(data_of experts-twice/model.safetensors)" ]
for grid in "1" "2 --expert-model-parallel-size 2"; do
  # shellcheck disable=SC2086  # words
  set -- $grid
  # shellcheck disable=SC2086
  done_by "$1" train $options --hidden-dropout 0 --attention-dropout 0 --seq-length 8 --mock-data --dtype fp64 \
    --global-batch-size 4 --train-iters 2 --lr 0.001 --log-interval 1 --metrics-file "experts$1" "${@:2}"
  loss "experts$1"
done
check "training begins with the same loss on two expert ranks" close_to experts2.loss experts1.loss 1e-10
sed 's/"num_local_experts": 4/"num_local_experts": 0/' "$fixtures/qwen3_moe/config.json" >experts-out/config.json
refused 3 "num_experts is 0" 1 checkpoint import --input experts-out --output none

# Checkpoints of Megatron-LM with the same weights become the same model.
megatron=$(realpath "$fixtures/../megatron")
done_by 2 checkpoint import --format megatron --input "$megatron/dist" --output dist --vocab-size 19 --no-tokenizer
done_by 1 checkpoint export --load dist --output dist-out
check "a checkpoint of torch_dist has the weights of its model" \
  [ "$(data_of dist-out/model.safetensors)" = "$(data_of exported/model.safetensors)" ]
done_by 2 checkpoint import --format megatron --input "$megatron/first" --output first --vocab-size 19 --no-tokenizer
done_by 1 checkpoint import --input "$fixtures/gpt2" --output gpt2 --no-tokenizer
for model in first gpt2; do done_by 1 checkpoint export --load "$model" --output "$model-out"; done
check "a checkpoint of 2019 has the weights of its model" \
  [ "$(data_of first-out/model.safetensors)" = "$(data_of gpt2-out/model.safetensors)" ]
# The printed options train the imported model, windows included.
done_by 1 checkpoint import --format megatron --input "$megatron/run_window" --output "a window" --no-tokenizer
eval "on 1 train $(sed -n 's/.*train it with //p' err) --seq-length 8 --mock-data --global-batch-size 2 --train-iters 1 --lr 0.01 --eval-iters 0"
check "the command that import prints trains the model" [ "$code" = 0 ]
# Likewise a model of llm.c, here of zeros: a header of 256 numbers, and the weights of one layer of 8 channels.
le() { for number in "$@"; do printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((number & 255)) $((number >> 8 & 255)) $((number >> 16 & 255)) $((number >> 24)))"; done; }
{ le 20240326 3 16 19 1 2 8 128; head -c $((248 * 4 + 4 * (128 * 8 + 16 * 8 + 12 * 64 + 13 * 8 + 2 * 8))) /dev/zero; } >llmc.bin
done_by 1 checkpoint import --format llm.c --input llmc.bin --output llmc --no-tokenizer
eval "on 1 train $(sed -n 's/.*train it with //p' err) --mock-data --global-batch-size 2 --train-iters 1 --lr 0.01 --eval-iters 0"
check "also one of llm.c" [ "$code $(grep -c ' 1/1 | ' err)" = "0 1" ]
# One flipped bit of the archives is found by the CRC-32 of the entry.
cp -r "$megatron/chunks" flipped
flip flipped/mp_rank_00/model_optim_rng.pt 4035
refused 3 "the entry 'model_optim_rng/data/1' has the CRC-32" 2 checkpoint import --format megatron --input flipped --output damaged
check "nothing of it can be loaded" [ -z "$(ls damaged)" ]
refused 3 "holds neither mp_rank_00 nor .metadata" 2 checkpoint import --format megatron --input "$fixtures/llama3" --output none
refused 3 "is not the magic number" 1 checkpoint import --format llm.c --input "$fixtures/llama3/model.safetensors" --output none
refused 2 "--vocab-size 21 is more than the 20 tokens" 1 checkpoint import --format megatron --input "$megatron/core" --output none --vocab-size 21

# Files are divided by size, and those of another export are not mixed with these.
done_by 2 checkpoint export --load in --output parts --max-shard-size 0.000002
check "several files have an index" [ -s parts/model.safetensors.index.json ]
refused 2 "belongs to another export" 1 checkpoint export --load in --output exported --max-shard-size 0.000002
rm parts/model-00002-of-*
refused 3 "which is not there" 1 checkpoint import --input parts --output none

# Two exports into one folder: the second one waits, or is refused and changes nothing.
mkdir held
printf 'host elsewhere\npid 1\n' >held/.lock
refused 4 "held is in use by another job, process 1 on host elsewhere" 2 checkpoint export --load in --output held
check "an export that is refused writes nothing" [ "$(ls -A held)" = .lock ]
rm held/.lock
for number in 1 2 3 4; do
  TRIREME_LOCK_WAIT=30 "$trireme" checkpoint export --load in --output held >/dev/null 2>held.$number || echo $? >held.code &
done
wait
check "exports at once are done one after another, and three of them write nothing" \
  [ "$(cat held.code 2>/dev/null) $(cat held.? | grep -c ' 0 files of weights written, 1 kept')" = " 3" ]
check "their model is that of one" diff -r exported held

# Refusals.
refused 3 "there is no nowhere" 2 checkpoint import --input nowhere --output none
cp -r "$fixtures/llama3" hostile
printf '\377\377\377\377\377\377\377\177' | dd of=hostile/model.safetensors conv=notrunc 2>/dev/null
refused 3 "states a header of" 2 checkpoint import --input hostile --output none
head -c 3000 "$fixtures/llama3/model.safetensors" >hostile/model.safetensors
refused 3 "it was cut off" 1 checkpoint import --input hostile --output none
cp "$fixtures/qwen2/model.safetensors" hostile/
refused 3 "model.layers.0.self_attn.q_proj.bias [8] is not part of the model" 1 checkpoint import --input hostile --output none
sed -i 's/LlamaForCausalLM/MambaForCausalLM/' hostile/config.json
refused 3 "'MambaForCausalLM' is not supported" 1 checkpoint import --input hostile --output none
refused 2 "--vocab-size 20 is more than the 19 tokens" 1 checkpoint import --input "$fixtures/gpt2" --output none --vocab-size 20
make_corpus corpus 1
done_by 1 train "${run[@]}" --save other --group-query-attention --num-query-groups 2 --disable-bias-linear
refused 2 "--num-query-groups 2: all models of the class have the default" 2 checkpoint export --load other --output none
check "a refusal leaves nothing" [ ! -e none ]

# The tokenizer comes along: text is continued with an imported model.
done_by 1 train "${run[@]}" --save bytes
done_by 1 checkpoint export --load bytes --output bytes-out
done_by 1 checkpoint import --input bytes-out --output bytes-in --format huggingface --eod-token '<|endoftext|>' --dtype fp32
for model in bytes bytes-in; do
  done_by 1 generate --load "$model" --prompt "the ship" --max-new-tokens 12 --temperature 0
  cp out "$model.text"
done
check "an imported model continues as the one that was exported" cmp bytes.text bytes-in.text
refused 2 "would be loaded instead of step 0" 1 checkpoint import --input bytes-out --output bytes

mkdir tokens-out
touch tokens-out/{config.json,tokenizer.model,chat_template.jinja,vocab.txt}
done_by 1 checkpoint export --load bytes --output tokens-out
check "an export leaves no tokenizer of an earlier one" [ "$(cd tokens-out && ls)" = "$(cd bytes-out && ls)" ]
rm tokens-out/config.json # as if another export had been killed
touch tokens-out/vocab.txt
done_by 1 checkpoint export --load bytes --output tokens-out
check "nor does one after an export that was killed" [ "$(cd tokens-out && ls)" = "$(cd bytes-out && ls)" ]

done_by 1 eval --load bytes-in --data-path corpus.h5
check "a corpus of the original tokenizer fits" grep -q '"perplexity"' out
