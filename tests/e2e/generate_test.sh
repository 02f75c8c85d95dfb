#!/bin/bash
# Many prompts at a time: the same results on every grid and in every batch, files that cannot be used, two attempts.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
done_by 1 train --num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 64 --data-path corpus.h5 \
  --global-batch-size 4 --train-iters 40 --lr 0.01 --eval-iters 0 --dtype fp64 --save saved

# Prompts of many lengths, one of ids alone, and a blank line.
sed 's/.*: "\(.*\)"}/\1/' corpus.jsonl | head -12 |
  awk '{ printf "{\"prompt\": \"%s\", \"id\": \"p%d\", \"max_new_tokens\": %d}\n", substr($0, 1, 1 + NR * 17 % 40), NR, NR * 7 % 30 }' >prompts.jsonl
echo >>prompts.jsonl
echo '{"tokens": [116, 104, 101, 32]}' >>prompts.jsonl
prompts=(generate --load saved --prompts prompts.jsonl --max-new-tokens 20)

# texts FILE: results without log-probabilities. numbers FILE: these, one a line.
texts() { sed 's/,"logprobs".*/}/' "$1"; }
numbers() { sed 's/.*"logprobs"//' "$1" | grep -oE -- '-?[0-9]+\.[0-9]+(e-?[0-9]+)?'; }

done_by 1 "${prompts[@]}" --output one.jsonl --batch-size 1 --logprobs 2
check "each prompt has a line" [ "$(wc -l <one.jsonl)" -eq 13 ]
check "in the order of the prompts" [ "$(grep -o '^{"id":[^,]*' one.jsonl | head -3 | tr -d '\n')" = '{"id":"p1"{"id":"p2"{"id":"p3"' ]
check "a prompt without a name has the number of its line" grep -q '^{"id":14,' one.jsonl
check "a line has its own number of tokens" [ "$(sed -n 1p one.jsonl | grep -o '"tokens":\[[^]]*' | tr -cd , | wc -c)" -eq 6 ]
times='continued 13 prompts of [0-9]+ tokens by [0-9]+ tokens in ([0-9.]+) s, ([0-9.]+) s of it for the prompts: [0-9.]+ tokens/s'
check "the log has the rate" grep -qE "$times" err
check "the prompts take a part of the time" awk "$(sed -nE "s|.*$times\$|BEGIN { exit !(\2 <= \1) }|p" err)"
check "nothing is on standard output" [ ! -s out ]
texts one.jsonl >one.texts
numbers one.jsonl >one.numbers
check "each token has three log-probabilities" [ "$(wc -l <one.numbers)" -eq $((3 * $(grep -o '"tokens":\[[^]]*' one.jsonl | grep -oE '[0-9]+' | wc -l))) ]
for grid in "2 --tp 2 --batch-size 5" "3 --batch-size 2"; do
  # shellcheck disable=SC2086  # words
  set -- $grid
  rm -f other.jsonl
  done_by "$1" "${prompts[@]}" --output other.jsonl --logprobs 2 "${@:2}"
  texts other.jsonl >other.texts
  numbers other.jsonl >other.numbers
  check "the texts on $grid" cmp one.texts other.texts
  check "the log-probabilities on $grid" close_to other.numbers one.numbers 1e-10
done

# One prompt alone, and the same in a file, are continued alike.
echo '{"prompt": "the ship"}' >ship.jsonl
done_by 1 generate --load saved --prompts ship.jsonl --max-new-tokens 30 --temperature 0 --output ship.out.jsonl
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 30 --temperature 0
text=$(sed 's/.*"text":"\(.*\)","tokens".*/\1/' ship.out.jsonl)
check "--prompt and --prompts give one text" [ "$(cat out)" = "the ship$text" ]
check "a text ends at the limit" grep -q '"finish_reason":"length"}' ship.out.jsonl

# Texts from nothing.
done_by 2 generate --load saved --num-samples 3 --max-new-tokens 5 --output nothing.jsonl
check "each text has a line" [ "$(grep -o '^{"id":[^,]*' nothing.jsonl | tr -d '\n')" = '{"id":1{"id":2{"id":3' ]
check "the texts differ" [ "$(sed 's/^{"id":[0-9]*//' nothing.jsonl | sort -u | wc -l)" -gt 1 ]

# A text that ends it, of several tokens: the text ends before it.
done_by 2 generate --load saved --prompts ship.jsonl --max-new-tokens 30 --temperature 0 --output stopped.jsonl --stop "no such" "${text:9:3}"
check "the text ends before --stop" grep -qF "\"text\":\"${text%%"${text:9:3}"*}\"" stopped.jsonl
check "and the line says so" grep -q '"finish_reason":"stop"}' stopped.jsonl

# A run that was killed goes on behind its last whole line.
{ head -4 one.jsonl; sed -n 5p one.jsonl | head -c 20; } >two_lives.jsonl
done_by 2 "${prompts[@]}" --output two_lives.jsonl --logprobs 2 --resume
texts two_lives.jsonl >other.texts
check "two attempts give the texts of one" cmp one.texts other.texts
check "the second does the rest alone" grep -q 'continued 9 prompts' err
cp two_lives.jsonl before
done_by 1 "${prompts[@]}" --output two_lives.jsonl --resume
check "a third has nothing to do" cmp before two_lives.jsonl

# Files and options that cannot be used.
refused 2 "--output one.jsonl exists: remove it, or add --resume to continue it" 2 "${prompts[@]}" --output one.jsonl
head -3 one.jsonl | sed 2d >mixed.jsonl
refused 3 "--resume: line 2 of mixed.jsonl has the id \"p3\", but prompt 2 of prompts.jsonl has \"p2\"" \
  1 "${prompts[@]}" --output mixed.jsonl --resume
bad() { # bad LINE MESSAGE
  { head -1 prompts.jsonl; printf '%b\n' "$1"; } >bad.jsonl
  refused 3 "bad.jsonl:2: $2" 1 generate --load saved --prompts bad.jsonl --output none.jsonl
}
bad '{"prompt": ""}' "the prompt is empty: give it at least one token"
bad '{"tokens": [1, 300]}' "token 300 is not in the model's vocabulary of 257"
bad "{\"prompt\": \"$(printf 'a%.0s' $(seq 65))\"}" "the prompt has 65 tokens, but the model has 64 positions: shorten it"
echo >bad.jsonl
refused 3 "bad.jsonl has no prompt" 1 generate --load saved --prompts bad.jsonl --output none.jsonl
refused 5 "absent.jsonl" 1 generate --load saved --prompts absent.jsonl --output none.jsonl
refused 5 "--output absent/x.jsonl" 2 "${prompts[@]}" --output absent/x.jsonl
check "what is refused leaves no file" [ ! -e none.jsonl ]
refused 2 "--prompts needs --output" 1 "${prompts[@]}"
refused 2 "--prompt, --prompts or --num-samples must be given, only one of them" 1 "${prompts[@]}" --output x.jsonl --prompt a
refused 2 "--stop needs --prompts" 1 generate --load saved --prompt a --stop b
refused 2 "--batch-size" 1 "${prompts[@]}" --output x.jsonl --batch-size 0
refused 4 "Try a smaller --batch-size" 1 "${prompts[@]}" --output x.jsonl --batch-size 2000000000
