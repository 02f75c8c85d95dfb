#!/bin/bash
# Special tokens of a tokenizer: from the files of transformers through corpus, training, export and import; conversations by its
# chat template; types of weights.
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

done_by 1 train "${shape[@]}" --train-iters 1 --data-path bytes.h5 --save bytes_run

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

# Conversations are written by the chat template; the same tokens as a prompt are continued alike.
chat=(generate --load run --max-new-tokens 8 --temperature 0 --output -)
echo '[{"role": "user", "content": "hi"}, {"role": "user", "content": "<|turn|>a"}]' >chat.json
echo '{"tokens": [272, 275, 71, 72, 274, 275, 274, 64, 274]}' >chat_tokens.jsonl
done_by 1 "${chat[@]}" --prompts chat_tokens.jsonl
cp out chat_tokens.out
done_by 2 "${chat[@]}" --chat chat.json
check "the template writes the conversation, and names are tokens" cmp out chat_tokens.out
done_by 1 "${chat[@]}" --chat - <chat.json
check "--chat - reads standard input" cmp out chat_tokens.out
done_by 1 generate --load run --max-new-tokens 8 --temperature 0 --chat chat.json
check "an answer without --output is text" grep -qav finish_reason out
printf 'hi\n\n/new\nhi\n' >lines
done_by 1 "${chat[@]:0:7}" --chat - <<<'[{"role": "user", "content": "hi"}]'
cat out out >twice
done_by 2 "${chat[@]:0:7}" --chat --interactive --tp 2 <lines
check "messages are lines of standard input" cmp out twice
refused 2 "--output and --chat without a file exclude each other" 1 "${chat[@]}" --chat --interactive
refused 2 "--system needs --chat without a file" 1 "${chat[@]}" --chat chat.json --system a
printf '{"messages": [{"role": "user", "content": "%s"}], "id": "%s", "tools": null}\n' hi first a second >chats.jsonl
done_by 1 "${chat[@]}" --chat chats.jsonl
check "each line is a conversation" [ "$(grep -o '^{"id":[^,]*' out | tr -d '\n')" = '{"id":"first"{"id":"second"' ]
# shellcheck disable=SC2016  # a template
echo '{% if messages|length > 1 %}{{ raise_exception("one message only") }}{% endif %}{{ bos_token ~ messages[0].content }}' >own.jinja
ended=(generate --load run --chat chats.jsonl --chat-template own.jinja --max-new-tokens 2000 --output -)
done_by 1 "${ended[@]}"
check "an answer ends at a token that ends texts" grep -q '"finish_reason":"end_of_document"}' out
done_by 1 "${ended[@]}" --ignore-eos
check "but not with --ignore-eos" grep -q '"finish_reason":"length"}' out
refused 3 "the template refuses the conversation: one message only" 1 "${chat[@]}" --chat chat.json --chat-template own.jinja
refused 3 "chat.json" 1 "${chat[@]}" --chat chat.json --chat-template own.jinja
echo '{% include "x" %}' >other.jinja
refused 3 "other.jinja, line 1: the tag 'include' is not supported" 1 "${chat[@]}" --chat chat.json --chat-template other.jinja
refused 2 "neither a file nor a template of the tokenizer" 1 "${chat[@]}" --chat chat.json --chat-template none
refused 2 "give a file of one by --chat-template" 1 generate --load bytes_run --chat chat.json

# All chat templates of a folder come back.
mkdir model2/additional_chat_templates
echo '{{ bos_token }}{{ tools[0].name }}' >model2/additional_chat_templates/tool_use.jinja
done_by 1 checkpoint import --input model2 --output with_tools
done_by 1 checkpoint export --load with_tools --output model4
check "export of import has the templates" diff -r model2/additional_chat_templates model4/additional_chat_templates
echo '{"messages": [{"role": "user"}], "tools": [{"name": "hi"}]}' >tools.json
echo '{"tokens": [272, 71, 72]}' >tools_tokens.jsonl
done_by 1 generate --load with_tools --max-new-tokens 8 --temperature 0 --prompts tools_tokens.jsonl --output tools.out
done_by 1 generate --load with_tools --max-new-tokens 8 --temperature 0 --chat tools.json --output -
check "a conversation with tools takes the template tool_use" cmp out tools.out

# SentencePiece, from a tokenizer.model to an export and back; a program without its library says so.
pieces=(--tokenizer sentencepiece --tokenizer-model "$tokenizers/sentencepiece_bpe/tokenizer.model")
on 2 corpus build --input bytes.jsonl "${pieces[@]}" --append-eod --prepend-bos --output pieces.h5
if grep -q 'built without it' err; then
  check "exit code 4 without SentencePiece" [ $code -eq 4 ]
else
  check "a tokenizer.model makes a corpus" [ $code -eq 0 ]
  done_by 1 corpus verify pieces.h5
  done_by 1 train "${shape[@]}" --train-iters 1 --data-path pieces.h5 --save pieces --tokenizer-type Llama2Tokenizer \
    --tokenizer-model "$tokenizers/sentencepiece_bpe/tokenizer.model"
  done_by 1 checkpoint export --load pieces --output model5
  check "the export has it" cmp model5/tokenizer.model "$tokenizers/sentencepiece_bpe/tokenizer.model"
  done_by 1 checkpoint import --input model5 --output pieces2
  for load in pieces pieces2; do
    done_by 1 generate --load $load --max-new-tokens 8 --temperature 0 --prompt "the ship" --output -
    cp out $load.out
  done
  check "and the import of it continues texts alike" cmp pieces.out pieces2.out
  refused 3 "not the tokenizer sentencepiece" 1 train "${shape[@]}" --train-iters 1 --data-path pieces.h5 --save no \
    --tokenizer-model "$tokenizers/unigram/tokenizer.model"
  echo none >none.model
  refused 3 "none.model does not make a tokenizer: SentencePiece cannot read" 1 corpus build --input bytes.jsonl --output no.h5 \
    --tokenizer sentencepiece --tokenizer-model none.model
fi
