#!/bin/bash
# Instruction data: conversations become a corpus, a model is fine-tuned on the assistant's words, on any grid, and answers.
shim=$(realpath "${3:?usage: conversations_test.sh TRIREME MPIEXEC IO_FAULT_SHIM}")
tokenizers=$(realpath "$(dirname "$0")/../fixtures/tokenizers")
source "$(dirname "$0")/functions.sh"

cat >chat.jinja <<'TEMPLATE'
{%- for message in messages %}{{- '<|user|>' + message.role + '\n' + message.content + '<|turn|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|user|>assistant\n' }}{%- endif %}
TEMPLATE
# conversations N: questions of several lengths, whose answer names their letter; every fourth has two turns.
conversations() {
  awk -v n="$1" 'BEGIN { for (i = 0; i < n; ++i) {
    letter = sprintf("%c", 97 + i % 4)
    turns = sprintf("{\"role\": \"user\", \"content\": \"%s%s?\"}, {\"role\": \"assistant\", \"content\": \"it is %s\"}",
                    substr("the ship the ship ", 1, 3 * (i % 7)), letter, letter)
    print "{\"messages\": [" turns (i % 4 ? "" : ", " turns) "]}" } }'
}
conversations 60 >chat.jsonl
build=(corpus build --tokenizer huggingface --tokenizer-model "$tokenizers/llama3/tokenizer.json" --chat)
done_by 1 "${build[@]}" --chat-template chat.jinja --input chat.jsonl --output chat.h5
check "the log counts what is learned" grep -q "of .* tokens are learned" err
check "and finds ends of turns among it" [ "$(grep -c 'none of these ends a text' err)" = 0 ]
done_by 2 "${build[@]}" --chat-template chat.jinja --input chat.jsonl --output two.h5 --part-size 500
check "two ranks build the same bytes" cmp chat.h5 two.h5
done_by 1 corpus inspect chat.h5
check "inspect counts ranges: 75 answers" grep -q "^learned tokens .*, in 75 ranges" out
done_by 2 corpus verify chat.h5
sed 's/"messages"/"conversations"/; s/"role": "user", "content"/"from": "human", "value"/g; s/"role": "assistant", "content"/"from": "gpt", "value"/g' chat.jsonl >sharegpt.jsonl
done_by 1 "${build[@]}" --chat-template chat.jinja --input sharegpt.jsonl --output sharegpt.h5
check "ShareGPT's form makes the same corpus" cmp chat.h5 sharegpt.h5

# The tokenizer's own template has no prompt for answers; without the end of a turn the log warns.
done_by 1 "${build[@]}" --input chat.jsonl --output own.h5
echo '{% for m in messages %}<|user|>{% if m.role == "assistant" %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}' >no_end.jinja
done_by 1 "${build[@]}" --chat-template no_end.jinja --input chat.jsonl --output no_end.h5
check "answers without ends are a warning" [ "$(grep -c 'none of these ends a text' err)" = 1 ]
echo '{% for m in messages %}<|user|>{{ m.content }}{% endfor %}{{ bos_token if not add_generation_prompt }}' >tail.jinja
refused 3 "chat.jsonl:1: tail.jinja: the text of the conversation does not begin with that of its first 2 messages; put {% generation %}" \
  1 "${build[@]}" --chat-template tail.jinja --input chat.jsonl --output no.h5

# Killed before calls that change a file, or without space at them, and run again.
parts=("${build[@]}" --chat-template chat.jinja --input chat.jsonl --output killed.h5 --part-size 2000 --workers 1)
wrong=0 stopped=0
for fault in kill 28; do
  for at in 15 40 65 90; do
    { shimmed $fault $at "${parts[@]}"; } 2>/dev/null
    [ $code -eq 0 ] || stopped=$((stopped + 1))
    [ ! -e killed.h5 ] || cmp -s chat.h5 killed.h5 || wrong=$((wrong + 1))
    done_by 1 "${parts[@]}"
    { cmp -s chat.h5 killed.h5 && [ ! -e killed.h5.parts ]; } || wrong=$((wrong + 1))
    rm -rf killed.h5 killed.h5.*
  done
done
check "a build that is stopped leaves no corpus, and continues to the same one: $stopped stopped" [ $stopped -ge 6 -a $wrong -eq 0 ]

# Bad lines and wrong uses.
{ head -3 chat.jsonl; echo '{"messages": []}'; echo '{"messages": [{"role": "user", "content": "a"}]}'; echo '{"text": "a"}'; tail -57 chat.jsonl; } >bad.jsonl
refused 3 "bad.jsonl:4: a conversation needs at least one message" 2 "${build[@]}" --chat-template chat.jinja --input bad.jsonl --output no.h5
done_by 2 "${build[@]}" --chat-template chat.jinja --input bad.jsonl --output skipped.h5 --on-bad-line skip
check "bad lines are skipped" cmp chat.h5 skipped.h5
check "and named" grep -q "skipped .*bad.jsonl:5: the conversation has no words of an assistant" err
refused 2 "--chat-template needs --chat" 1 "${build[@]:0:6}" --chat-template chat.jinja --input chat.jsonl --output no.h5
refused 2 "--chat and --append-eod exclude each other
--chat and --prepend-bos exclude each other" 1 "${build[@]}" --input chat.jsonl --output no.h5 --append-eod --prepend-bos
refused 2 "the tokenizer has no chat template: give a file of one by --chat-template" \
  1 corpus build --tokenizer bytes --chat --input chat.jsonl --output no.h5
refused 3 "Megatron-LM's format has no place for that" 1 corpus export chat.h5 --output-prefix no
make_text 1 >text.jsonl
done_by 1 "${build[@]:0:6}" --input text.jsonl --output text.h5
refused 3 "of text.h5 and chat.h5 one holds conversations" 1 corpus merge text.h5 chat.h5 --output no.h5
check "no corpus is left behind" [ ! -e no.h5 ]

# Fine-tuning from a base model: the loss falls, on any grid, and continues on another.
shape=(--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 96 --dtype fp64 --log-interval 1)
done_by 1 train "${shape[@]}" --data-path own.h5 --lr 0.01 --train-iters 0 --save base
tune=(train "${shape[@]}" --data-path chat.h5 --load base --finetune --global-batch-size 4 --lr 0.01 --lr-decay-style constant
  --eval-interval 30 --eval-iters 1)
done_by 1 "${tune[@]}" --train-iters 60 --save tuned --metrics-file one.jsonl
cp err tune.err
head_is_short "fine-tuning"
check "the log counts samples" grep -q "training samples of chat.h5: 58 conversations in .* samples of 97 tokens, .* % padding" tune.err
check "and learned tokens" grep -q "corpus chat.h5: .* of them learned" tune.err
field lm_loss one.jsonl >losses
check "the loss falls" awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first / 3) }' losses
done_by 2 "${tune[@]}" --train-iters 12 --pp 2 --micro-batch-size 2 --metrics-file two.jsonl --variable-seq-lengths
done_by 4 "${tune[@]}" --train-iters 12 --tp 2 --cp 2 --sequence-parallel --metrics-file four.jsonl
field lm_loss one.jsonl | head -12 >losses
for ranks in two four; do
  field lm_loss $ranks.jsonl | head -12 >"losses.$ranks"
  check "$ranks ranks compute the same losses" close_to losses "losses.$ranks" 1e-10
done
on 2 "${tune[@]}" --train-iters 12 --exit-interval 7 --save stopped --use-distributed-optimizer
check "a run stops" [ $code -eq 75 ]
done_by 2 train "${shape[@]}" --data-path chat.h5 --load stopped --global-batch-size 4 --lr 0.01 --lr-decay-style constant \
  --eval-interval 30 --eval-iters 1 --train-iters 12 --tp 2 --metrics-file rest.jsonl
field lm_loss rest.jsonl | head -5 >rest
tail -5 losses >last
check "and goes on with the same samples on another grid" close_to last rest 1e-10
done_by 1 "${tune[@]}" --train-iters 1 --packed-documents joined --metrics-file joined.jsonl
check "joined documents see each other" [ "$(field lm_loss joined.jsonl | head -1)" != "$(head -1 losses)" ]
done_by 1 "${tune[@]}" --train-iters 1 --packed-documents joined --reset-position-ids --reset-attention-mask --metrics-file again.jsonl
check "unless they are kept apart by name" [ "$(field lm_loss again.jsonl | head -1)" = "$(head -1 losses)" ]
done_by 1 train "${shape[@]/96/24}" --data-path 0.5 chat.h5 0.5 text.h5 --global-batch-size 4 --lr 0.01 --train-iters 1 --eval-iters 0
check "longer conversations are a line of the log" grep -q "cut .* tokens from the ends of .* conversations, longer than a sample" err

# The model answers, and ends its answer.
echo '{"messages": [{"role": "user", "content": "the ship b?"}]}' >ask.jsonl
check "the model takes the corpus' template, in one line" \
  [ "$(grep -c 'takes the special tokens and the chat template of chat.h5, which differ from its own' tune.err)" = 1 ]
done_by 1 generate --load tuned --chat ask.jsonl --temperature 0 --max-new-tokens 20 --output -
check "it answers as it was taught" grep -q '"text": *"it is .*"end_of_document"' out
done_by 1 eval --load tuned --data-path chat.h5
check "eval counts learned tokens" [ "$(field tokens out)" = "$("$trireme" corpus inspect chat.h5 | sed -n 's/^learned tokens *\([0-9]*\),.*/\1/p')" ]
done_by 1 corpus samples chat.h5 --model-type gpt --seq-length 96 --count 1
check "samples are printed with labels" grep -q '"labels": \[-1, ' out
