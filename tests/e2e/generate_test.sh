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

# Pipes: prompts and results on standard input and output, the log elsewhere. An empty prompt begins a document.
done_by 2 "${prompts[@]}" --output - --logprobs 2 <prompts.jsonl
texts out >other.texts
check "standard output has what the file has" cmp one.texts other.texts
done_by 2 generate --load saved --prompts - --max-new-tokens 20 <prompts.jsonl
check "prompts come from standard input" cmp one.texts out
done_by 1 generate --load saved --prompt - --max-new-tokens 30 --temperature 0 <<<"the ship"
check "so does a prompt, without its line feed" [ "$(cat out)" = "the ship$text" ]
check "the rate is in the log" grep -qE 'continued 1 prompt of 8 tokens by 30 tokens in .* tokens/s' err
echo '{"prompt": ""}' | done_by 1 generate --load saved --prompts - --max-new-tokens 5
done_by 1 generate --load saved --prompt "" --max-new-tokens 5
check "an empty prompt begins a document" [ "$(wc -c <out)" -ge 6 ]
printf 'the ship\n\nthe' >lines
"$mpiexec" -n 2 "$trireme" generate --load saved --interactive --max-new-tokens 30 --temperature 0 --tp 2 <lines >out 2>err
check "lines are continued one by one, on rank 0" [ "$(head -1 out)" = "$text" ]
check "also an empty one, and the last without a line feed" [ "$(grep -c '30 tokens, .* tokens/s' err)" -eq 3 ]

# Several continuations of a prompt; tokens that are unlikely or repeated.
done_by 2 generate --load saved --prompts ship.jsonl --max-new-tokens 9 --num-samples 3
check "each continuation has its number" [ "$(grep -o '"id":1,"sample":[0-9]' out | tr -d '\n')" = '"id":1,"sample":1"id":1,"sample":2"id":1,"sample":3' ]
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 9 --num-samples 3
check "as texts they are lines" [ "$(grep -c '^the ship' out)" -eq 3 ]
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 30 --min-p 1
check "with --min-p 1 the likeliest token is the only one" [ "$(cat out)" = "the ship$text" ]
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 12 --temperature 0 --repetition-penalty 1000
check "a penalty changes a text that repeats itself" [ "$(cat out)" != "the ship${text:0:12}" ]
ended=(generate --load saved --prompt "" --max-new-tokens 2000 --output -)
done_by 1 "${ended[@]}"
check "a document ends" grep -q '"finish_reason":"end_of_document"}' out
done_by 1 "${ended[@]}" --ignore-eos
check "but not with --ignore-eos" grep -q '"finish_reason":"length"}' out

# A text that ends it, of several tokens: the text ends before it.
done_by 2 generate --load saved --prompts ship.jsonl --max-new-tokens 30 --temperature 0 --output stopped.jsonl --stop "no such" "${text:9:3}"
check "the text ends before --stop" grep -qF "\"text\":\"${text%%"${text:9:3}"*}\"" stopped.jsonl
check "and the line says so" grep -q '"finish_reason":"stop"}' stopped.jsonl
before=${text%%"${text:9:3}"*}
check "its tokens spell it" [ "$(sed 's/.*"tokens":\[\([^]]*\).*/\1/' stopped.jsonl | tr , '\n' | grep -c .)" -eq ${#before} ]
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 30 --temperature 0 --stop "${text:9:3}"
check "a text that is printed as it grows ends there, too" [ "$(cat out)" = "the ship$before" ]

# Each new checkpoint of a run is followed.
follow() { sed 's/"text".*//' followed.jsonl 2>/dev/null; }
"$mpiexec" -n 2 "$trireme" generate --load later --follow --prompts ship.jsonl --max-new-tokens 5 --output followed.jsonl 2>err &
follower=$!
for steps in 20 40; do
  done_by 1 train --num-layers 1 --hidden-size 16 --num-attention-heads 4 --seq-length 64 --data-path corpus.h5 --eval-iters 0 \
    --global-batch-size 4 --train-iters $steps --lr-decay-iters 40 --lr 0.01 --save later --load later --load-or-init
  for _ in $(seq 100); do follow | grep -q '"iteration":'$steps && break; sleep 0.1; done
done
kill $follower
wait $follower 2>/dev/null
check "each checkpoint has a line" [ "$(follow)" = $'{"id":1,"iteration":20,\n{"id":1,"iteration":40,' ]

# A run that was killed goes on behind its last whole line.
{ head -4 one.jsonl; sed -n 5p one.jsonl | head -c 20; } >two_lives.jsonl
done_by 2 "${prompts[@]}" --output two_lives.jsonl --logprobs 2 --resume
texts two_lives.jsonl >other.texts
check "two attempts give the texts of one" cmp one.texts other.texts
check "the second does the rest alone" grep -q 'continued 9 prompts' err
cp two_lives.jsonl before
done_by 1 "${prompts[@]}" --output two_lives.jsonl --resume
check "a third has nothing to do" cmp before two_lives.jsonl

# A model with more rows than its tokenizer has ids draws some without a text.
done_by 1 train "${run[@]}" --vocab-size 2000 --save wide
for i in 1 2 3 4 5 6; do echo '{"prompt": "the"}'; done >short.jsonl
done_by 2 generate --load wide --prompts short.jsonl --output wide.jsonl --max-new-tokens 6 --temperature 5
check "ids without a text are drawn, too" [ "$(grep -o '"tokens":\[[0-9,]*' wide.jsonl | tr -c '0-9\n' '\n' | sort -n | tail -1)" -gt 300 ]
printf '{"prompt": "a", "max_new_tokens": 0}\n' >nothing.jsonl
done_by 1 generate --load wide --prompts nothing.jsonl --output - --logprobs 2
check "no tokens have no log-probabilities" grep -q '"logprobs":\[\],"top_logprobs":\[\]' out

# Files and options that cannot be used.
refused 2 "--output one.jsonl exists: remove it, or add --resume to continue it" 2 "${prompts[@]}" --output one.jsonl
refused 2 "prompts.jsonl is both input and output" 2 "${prompts[@]}" --output ./prompts.jsonl --resume
timeout -k 5 60 "$trireme" generate --load saved --follow --prompts ship.jsonl --max-new-tokens 1 >/dev/full 2>err
check "output that does not arrive ends the program" [ "$? $(grep -c 'cannot write to standard output: No space' err)" = "5 1" ]
head -3 one.jsonl | sed 2d >mixed.jsonl
refused 3 "--resume: line 2 of mixed.jsonl has the id \"p3\", but prompt 2 of prompts.jsonl has \"p2\"" \
  1 "${prompts[@]}" --output mixed.jsonl --resume
bad() { # bad LINE MESSAGE
  { head -1 prompts.jsonl; printf '%b\n' "$1"; } >bad.jsonl
  refused 3 "bad.jsonl:2: $2" 1 generate --load saved --prompts bad.jsonl --output none.jsonl
}
bad '{"tokens": []}' '"tokens" is empty: give it at least one token'
bad '{"tokens": [1, 300]}' "token 300 is not in the model's vocabulary of 257"
bad "{\"prompt\": \"$(printf 'a%.0s' $(seq 65))\"}" "the prompt has 65 tokens, but the model has 64 positions: shorten it"
echo >bad.jsonl
refused 3 "bad.jsonl has no prompt" 1 generate --load saved --prompts bad.jsonl --output none.jsonl
refused 5 "absent.jsonl" 1 generate --load saved --prompts absent.jsonl --output none.jsonl
refused 5 "--output absent/x.jsonl" 2 "${prompts[@]}" --output absent/x.jsonl
check "what is refused leaves no file" [ ! -e none.jsonl ]
refused 2 "--prompt, --prompts, --chat and --interactive exclude each other" 1 "${prompts[@]}" --output x.jsonl --prompt a
refused 2 "must be given where standard input is no terminal" 1 generate --load saved </dev/null
refused 2 "--logprobs needs --output FILE or --output -" 1 generate --load saved --prompt a --logprobs 1
refused 2 "--temperature 0 always takes the likeliest token and excludes --min-p" \
  1 generate --load saved --prompt a --temperature 0 --min-p 0.1
refused 2 "--follow: saved/step-" 1 generate --load saved/step-* --prompt a --follow
refused 2 "--batch-size" 1 "${prompts[@]}" --output x.jsonl --batch-size 0
refused 4 "Try a smaller --batch-size" 1 "${prompts[@]}" --output x.jsonl --batch-size 2000000000
