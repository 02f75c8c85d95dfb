#!/bin/bash
# What a user sees on a terminal: the line of a run that renews itself, also in a narrower window and after an interrupt, and
# prompts that are typed.
source "$(dirname "$0")/functions.sh"

# script runs commands by this shell. Others end at once, as dash does, when an interrupt reaches them beside the program.
SHELL=$(command -v bash)
export SHELL TERM=xterm

make_corpus corpus 1
train=(train "${model[@]:0:8}" --log-interval 1000000 --data-path corpus.h5 --global-batch-size 4 --lr 0.01 --eval-iters 0)

# on_terminal COMMANDS: runs shell commands on a terminal of 120 columns; what it shows is in the file shown.
on_terminal() {
  timeout -k 5 60 script -qec "stty cols 120 rows 24; $1" shown >out 2>err
  code=$?
}
# Each status line that was drawn; what the terminal shows after the last one.
status_lines() { tr '\r\n' '\n\n' <shown | sed -n 's/.*\x1b\[J\(training.*\)/\1/p'; }
rest() { tr -d '\n' <shown | sed 's/.*\x1b\[J//'; }
words() { printf '%q ' "$trireme" "$@"; }

# A second of training, at least.
LC_ALL=C.UTF-8 on_terminal "$(words "${train[@]}" --train-iters 1000000 --exit-duration-in-mins 0.04)"
check "the run ends" [ $code -eq 0 ]
line='training .*% .* of 1000000  .* left  loss [0-9.]+ [▁▂▃▄▅▆▇█]+  [0-9]+ tokens/s'
status_lines >lines
check "a line shows progress, time left, loss, its curve and speed" grep -qE "$line" lines
check "it is drawn several times" [ "$(wc -l <lines)" -ge 3 ]
check "and has a bar where there is room" grep -qF "training [" lines
check "the run leaves a clean terminal" [ "$(rest | grep -c ' left ')" -eq 0 ]

on_terminal "{ sleep 1.2; stty cols 40 </dev/tty; } & $(words "${train[@]}" --train-iters 1000000 --exit-duration-in-mins 0.05)"
status_lines >lines
check "the line fits the window" awk '{ if (length > 119) bad = 1 } END { exit bad }' lines
check "also once that is narrower" [ "$(tail -1 lines | wc -c)" -le 40 ]
check "without a Unicode locale it is ASCII" [ "$(LC_ALL=C grep -c '[^ -~]' lines)" -eq 0 ]

on_terminal "$(words "${train[@]}" --train-iters 1000000) & sleep 2; kill -INT \$!; wait \$!"
check "an interrupted run stops" [ $code -eq 75 ]
check "its message has a line of its own" grep -q $'\x1b''\[J'"trireme: SIGINT received" shown
check "and the terminal is clean" [ "$(rest | grep -c ' left ')" -eq 0 ]

"$trireme" "${train[@]}" --train-iters 2000 --exit-duration-in-mins 0.02 2>err
check "where standard error is no terminal there is no such line" [ "$(grep -c $'\x1b''\|training .*%' err)" -eq 0 ]

# Under mpirun standard error is a pipe to the terminal: lines renew themselves if asked.
on_terminal "TRIREME_PROGRESS=always $(printf '%q ' "$mpiexec" -n 2 "$trireme" "${train[@]}") --train-iters 1000000 --exit-duration-in-mins 0.05"
status_lines >lines
check "two ranks have one line if asked" [ "$code $(($(wc -l <lines) >= 3))" = "0 1" ]
check "of 80 columns at most" awk '{ if (length > 79) bad = 1 } END { exit bad }' lines
check "and leave a clean terminal" [ "$(rest | grep -c ' left ')" -eq 0 ]
TRIREME_PROGRESS=never on_terminal "$(words "${train[@]}" --train-iters 1000000 --exit-duration-in-mins 0.02)"
check "no line is drawn where none is wanted" [ "$code $(grep -c $'\x1b''\[J' shown)" = "0 0" ]
TRIREME_PROGRESS=yes refused 2 "TRIREME_PROGRESS=yes is not auto, always or never" 2 info

# Prompts are typed; an earlier one is recalled; ^C ends a continuation, ^D the program.
done_by 1 "${train[@]}" --train-iters 40 --dtype fp64 --save saved
done_by 1 generate --load saved --prompt "the ship" --max-new-tokens 12 --temperature 0
text=$(sed 's/^the ship//' out)
# typed KEYS TEXT: once TEXT is shown, types KEYS.
typed() {
  for _ in $(seq 300); do grep -qF -- "$2" shown 2>/dev/null && break; sleep 0.1; done
  sleep 0.3
  printf '%b' "$1"
}
rm -f shown
{
  typed 'the shop\177\177ip\r' "> "
  typed '\033[A\r' "12 tokens,"
  typed '\004' "12 tokens, "
  sleep 1
} | timeout -k 5 60 script -qefc "stty cols 100; $(words generate --load saved --max-new-tokens 12 --temperature 0); stty -a" shown >out 2>err
check "a typed prompt is continued, and a recalled one" [ "$(tr -d '\r' <shown | grep -cxF -- "$text")" -eq 2 ]
check "the terminal echoes again" grep -q ' icanon.* echo \| echo .*' shown
rm -f shown
{
  typed 'the ship\r' "> "
  typed '\003' "${text:1:4}"
  typed '\004' "tokens/s"
  sleep 1
} | timeout -k 5 60 script -qefc "stty cols 100; $(words generate --load saved --max-new-tokens 1000000 --temperature 0); echo code \$?" shown >out 2>err
check "an interrupt ends the continuation alone" grep -q 'code 0' shown

# A conversation: each answer is that of the messages so far, as from a file.
echo '{% for m in messages %}{{ " " ~ m.content }}{% endfor %}' >chat.jinja
done_by 1 train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 128 --data-path corpus.h5 --global-batch-size 4 \
  --lr 0.01 --eval-iters 0 --train-iters 150 --dtype fp64 --save talker
# The penalty makes an answer depend on all of the messages.
chat=(generate --load talker --chat-template chat.jinja --max-new-tokens 8 --temperature 0 --repetition-penalty 2)
answer() { # answer MESSAGES: sets text, and json, its text in JSON
  done_by 1 "${chat[@]}" --chat - --output - <<<"[{\"role\": \"system\", \"content\": \"rows\"}, $1]"
  json=$(sed 's/.*"text":\(".*"\),"tokens".*/\1/' out)
  text=$(sed 's/^"//; s/"$//' <<<"$json")
}
ship='{"role": "user", "content": "the ship"}' crew='{"role": "user", "content": "the oar"}'
answer "$crew"
alone=$text
answer "$ship"
first=$text
answer "$ship, {\"role\": \"assistant\", \"content\": $json}, $crew"
second=$text
check "the answers differ" [ "$(printf '%s\n' "$alone" "$first" "$second" | sort -u | wc -l)" -eq 3 ]
rm -f shown
{
  typed 'the ship\r' "> "
  typed 'the oar\r' "8 tokens,"
  typed '/new\r' "$second"
  typed 'the ship\r' "another conversation"
  sleep 1
  printf '\004'
} | timeout -k 5 60 script -qefc "stty cols 100; $(words "${chat[@]}" --chat --system rows); echo code \$?" shown >out 2>err
check "a first message is answered, and again in another conversation" [ "$(tr -d '\r' <shown | grep -cxF -- "$first")" -eq 2 ]
check "a second one with its history" [ "$(tr -d '\r' <shown | grep -cxF -- "$second")" -eq 1 ]
check "the conversation ends" grep -q 'code 0' shown
refused 2 "the tokenizer has no chat template: give a file of one by --chat-template" 1 generate --load saved --chat --interactive
