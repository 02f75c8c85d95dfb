#!/bin/bash
# Special tokens of a tokenizer: from the files of transformers through corpus, training, export and import; types of weights.
tokenizers=$(realpath "$(dirname "$0")/../fixtures/tokenizers")
source "$(dirname "$0")/functions.sh"

make_corpus bytes 1
mkdir bare
cp "$tokenizers/llama3/tokenizer.json" bare/
build=(corpus build --input bytes.jsonl --tokenizer huggingface --append-eod)
done_by 2 "${build[@]}" --tokenizer-model "$tokenizers/llama3/tokenizer.json" --prepend-bos --output llama.h5 --part-size 400
done_by 1 "${build[@]}" --tokenizer-model bare/tokenizer.json --output bare.h5
done_by 1 corpus verify llama.h5
done_by 1 corpus inspect llama.h5
check "corpus inspect lists them" grep -q 'special tokens   bos 272, eos 274, pad 276, stops 273 274, before texts 272' out
done_by 1 corpus samples llama.h5 --model-type gpt --seq-length 16 --max-samples 8
check "--prepend-bos begins documents with BOS" grep -q '272' out
refused 2 "the tokenizer bytes names no token that begins texts" 1 corpus build --input bytes.jsonl --output no.h5 \
  --tokenizer bytes --prepend-bos

# The export of a run has the files of its tokenizer.
shape=(--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --global-batch-size 4 --lr 0.01 --eval-iters 0)
done_by 1 train "${shape[@]}" --train-iters 2 --data-path llama.h5 --save run --dtype fp64
done_by 1 checkpoint export --load run --output model
for file in tokenizer_config.json generation_config.json chat_template.jinja; do
  check "$file is the tokenizer's" cmp "model/$file" "$tokenizers/llama3/$file"
done
check "config.json has both ends of generation" [ "$(tr -d ' \n' <model/config.json | grep -o '"bos_token_id":272,"eos_token_id":\[273,274\]')" ]
done_by 1 checkpoint import --input model --output again
done_by 1 checkpoint export --load again --output model2
check "export of import has the same tokenizer" cmp model/tokenizer.json model2/tokenizer.json

# Equal ids fit, whatever the special tokens; the model keeps its own.
done_by 1 eval --load run --data-path bare.h5
check "differing special tokens are one line" [ "$(grep -c 'same ids, but other special tokens: .*bos none and 272' err)" = 1 ]
done_by 2 train "${shape[@]}" --train-iters 1 --data-path bare.h5 --load again --finetune --save tuned
check "a new run keeps the model's" [ "$(grep -c 'the model keeps its special tokens' err)" = 1 ]
done_by 1 train "${shape[@]}" --train-iters 2 --data-path 1 bare.h5 1 llama.h5 --save blend
check "the first corpus of a blend counts" grep -q "of which the first count" err
done_by 1 checkpoint export --load tuned --output model3
check "and exports them" cmp model3/generation_config.json "$tokenizers/llama3/generation_config.json"
done_by 1 corpus merge bare.h5 llama.h5 --output both.h5
check "a merged corpus has those of the first" grep -q "both.h5 keeps the special tokens of bare.h5" err
done_by 1 corpus merge bare.h5 llama.h5 --output view.h5 --view
done_by 1 corpus verify view.h5
refused 3 "digest of ids" 1 eval --load run --data-path bytes.h5

# Prompts begin as the tokenizer has it.
echo '{"text": "the rest"}' >lambada.jsonl
for bos in "" --no-bos; do
  # shellcheck disable=SC2086  # none or one
  done_by 1 eval --load run --task LAMBADA --data-path lambada.jsonl --dtype fp32 $bos
  cp out "lambada$bos"
  cp err "err.bos$bos"
done
check "texts begin with BOS, in one line" [ "$(grep -c 'texts begin with 272 (<|begin_of_text|>)' err.bos)" = 1 ]
check "--no-bos says what it leaves out" grep -q "texts lack 272" err.bos--no-bos
check "and changes the loss" [ "$(cat lambada)" != "$(cat lambada--no-bos)" ]
check "fp64 weights are loaded in fp32, in one line" [ "$(grep -c 'weights stored in fp64 are loaded in fp32' err.bos--no-bos)" = 1 ]
