#!/bin/bash
# trireme report: the page on two runs, one of them in two attempts, and on what older runs and killed ones leave.
source "$(dirname "$0")/functions.sh"

make_corpus corpus 1
run=("${model[@]}" --data-path corpus.h5 --global-batch-size 4 --train-iters 12 --lr 0.01 --eval-interval 4 --eval-iters 1
  --split 90,6,4)

# holds PAGE TEXT: the page holds the text.
holds() { check "$1 holds '$2'" grep -qF -- "$2" "$1"; }
# has_no PAGE TEXT
has_no() { check "$1 holds no '$2'" [ "$(grep -cF -- "$2" "$1")" = 0 ]; }
# round4 NAME FILE LINES: the last of these numbers, as the page shows a loss.
round4() { printf '%.4f' "$(field "$1" "$2" | tail -1)"; }

# A run in two attempts: stopped after 6 of 12, then killed behind its checkpoint, then continued on another grid.
mkdir one
SLURM_JOB_ID=4711 on 2 train "${run[@]}" --save one/checkpoints --metrics-file one/metrics.jsonl --exit-interval 6
check "the first attempt stops early" [ $code = 75 ]
printf '{"iteration": 7, "lm_loss": 3, "elapsed_ms": 2500}\n{"iteration": 8, "lm_' >>one/metrics.jsonl
done_by 1 train "${run[@]}" --save one/checkpoints --load one/checkpoints --metrics-file one/metrics.jsonl --save-interval 3 \
  --mfu-peak 0.5
check "the log has the goodput so far, and of all attempts" \
  [ "$(grep -c 'goodput, the time that trained: .* lost: .*iterations repeated 2.5 s' err)" = 2 ]
# Another, with another rate, in one attempt; all of its ends and begins are those of the program.
done_by 1 train "${run[@]/#0.01/0.02}" --save "two & more" --metrics-file two.jsonl --save-interval 12

done_by 1 report one two.jsonl --output page.html
holds page.html "<!DOCTYPE html>"
has_no page.html ://
check "the page has its own script alone" [ "$(grep -o "<script[^>]*>" page.html)" = "<script>" ]
holds page.html "$(round4 lm_loss one/metrics.jsonl) at 12"
holds page.html "$(round4 lm_loss two.jsonl) at 12"
holds page.html "$(round4 test_loss two.jsonl) at 12"
holds page.html "stopped early, saved, exit code 75"
holds page.html "done, exit code 0"
holds page.html "1 iteration, 2.5 s"   # lost behind the checkpoint
holds page.html "Where the time went"
holds page.html ">iterations repeated<"
holds page.html "4711 on $(hostname)"
holds page.html "2 ranks: data 2"
holds page.html "Options that differ"
holds page.html "<td>0.02</td>"
holds page.html "two &amp; more"
holds page.html "one: attempt 2 continued after iteration 6"
holds page.html "% of 0.5"
for title in "Training loss" "Validation loss" "Learning rate" "Gradient norm" "Speed" "Memory of rank 0"; do
  holds page.html "$title"
done
has_no page.html "Not recorded"
check "each tag of the page has its end" awk '
  { text = text $0 "\n" }
  END {
    sub(/<style>.*<\/style>/, "", text); sub(/<script>.*<\/script>/, "", text)
    while (match(text, /<[^>]*>/)) {
      tag = substr(text, RSTART + 1, RLENGTH - 2); text = substr(text, RSTART + RLENGTH)
      if (tag ~ /^!/ || tag ~ /\/$/) continue
      if (tag !~ /^\//) { sub(/ .*/, "", tag); open[++depth] = tag } else if ("/" open[depth--] != tag) exit 1
    }
    exit depth != 0
  }' page.html

# A file of metrics in a run folder has the folder's name, from any place.
done_by 1 report one/metrics.jsonl --output named.html
holds named.html "<title>one</title>"
(cd one && "$trireme" report . --output ../here.html) && (cd one && "$trireme" report metrics.jsonl --output ../file.html)
holds here.html "<title>one</title>"
holds file.html "<title>one</title>"
mkdir other && cp -r one other/one
done_by 1 report one other/one --output same.html
holds same.html "<title>one, other/one</title>"

# Several runs may be given, each once, by any spelling of its path.
done_by 1 report --help
check "the usage has several runs" grep -qF "Usage: trireme report RUN... [OPTION]..." out
ln -s one link
refused 5 "cannot open absent: No such file or directory" 1 report --flight absent
refused 2 "one is given twice: give each run once" 1 report one two.jsonl one --output twice.html
for other in "$PWD/one" link one/metrics.jsonl; do
  refused 2 "one and $other are the same run: give each run once" 1 report one two.jsonl "$other" --output twice.html
done

# A run that was killed: its last line is cut short, and no end is noted; the batch file knows its exit code.
mkdir killed
head -5 two.jsonl | sed '5s/.\{30\}$//' >killed/metrics.jsonl
head -1 two.jsonl.lives >killed/metrics.jsonl.lives
done_by 1 report killed --output killed.html
holds killed.html "no end recorded"
holds killed.html "1 line of the metrics could not be read"
started=$(sed -n 's/.*"time":"\([^"]*\).*/\1/p' killed/metrics.jsonl.lives)
printf '%s job  step 0\n%s job  step 0 returned 137\n' "$started" "$started" | sed 's/job  step/job 7 step/' >killed/lives
sed -i 's/"job":""/"job":"7"/' killed/metrics.jsonl.lives
done_by 1 report killed --output killed.html
holds killed.html "ended by signal 9, exit code 137"

# A folder of checkpoints alone, and one attempt that ends by an error.
done_by 1 report "two & more" --output saved.html
holds saved.html "Not recorded. --metrics-file of a run records it."
holds saved.html "in the folder"
refused 8 "loss or gradients were not finite in 2 iterations in a row" 1 train "${run[@]/#0.01/1e20}" --no-check-for-nan-in-loss-and-grad --max-skipped 2 --metrics-file diverged.jsonl
check "NaN has no sign" [ "$(cat err diverged.jsonl* | grep -cE -- "[ (]-nan")" = 0 ]
done_by 1 report diverged.jsonl --output diverged.html
holds diverged.html "numbers not finite, exit code 8"
holds diverged.html "Try a lower --lr"

# The page replaces none of its files, whatever name is given.
ln -s "$PWD/one/metrics.jsonl" soft.html
ln two.jsonl.lives hard.html
cp -r one before
for output in one/metrics.jsonl ./one/../one/metrics.jsonl soft.html one/metrics.jsonl.lives \
  one/checkpoints/step-00000012/manifest.json; do
  refused 2 "an input of the page: name another file" 1 report two.jsonl one --output "$output"
done
refused 2 "--output hard.html is two.jsonl.lives, an input of the page" 1 report two.jsonl --output hard.html
check "its files are unchanged" diff -r one before

# Pipes and devices.
mkfifo pipe
mkdir piped piped/lives_pipe
mkfifo piped/metrics.jsonl
cp two.jsonl piped/lives_pipe/metrics.jsonl
mkfifo piped/lives_pipe/metrics.jsonl.lives
refused 3 "pipe is a pipe, not a regular file" 1 report pipe --output none.html
refused 3 "piped/metrics.jsonl is a pipe, not a regular file" 1 report piped --output none.html
refused 3 "metrics.jsonl.lives is a pipe, not a regular file" 1 report piped/lives_pipe --output none.html

refused 5 "there is no absent" 1 report absent --output absent.html
mkdir empty
refused 3 "empty has neither metrics nor checkpoints" 1 report empty --output empty.html
: >begun.jsonl
refused 3 "begun.jsonl has neither metrics nor checkpoints: wait for its first iteration" 1 report begun.jsonl --output begun.html
cp two.jsonl killed/other.jsonl && mv killed/metrics.jsonl killed/third.jsonl
refused 2 "killed has several files of metrics" 1 report killed --output several.html
refused 5 "--output nowhere/page.html: cannot be written" 1 report one --output nowhere/page.html
refused 2 "--output must be given, or --follow" 1 report one
refused 2 "--output and --follow exclude each other" 1 report one --output page.html --follow
refused 2 "--host and --port need --follow" 1 report one --output page.html --port 0
refused 2 "--host nowhere is no address" 1 report one --follow --host nowhere

# A page that is served. request METHOD PATH HEADER...: prints the answer.
: >late.jsonl
"$trireme" report one late.jsonl --follow --port 0 >served 2>err &
server=$!
for _ in $(seq 100); do grep -q until served && break; sleep 0.1; done
port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/ until.*|\1|p' served)
check "the address is printed" [ -n "$port" ]
request() {
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s\r\n' "$1 $2 HTTP/1.1" "Connection: close" "${@:3}" "" >&3
  cat <&3
  exec 3>&-
}
own="Host: localhost:$port"
request GET / "$own" >answer
holds answer "late.jsonl has neither metrics nor checkpoints: wait for its first iteration"
cp two.jsonl late.jsonl
sleep 1
request GET / "$own" >answer
holds answer "HTTP/1.1 200 OK"
holds answer 'data-renewal="2"'
holds answer "<title>one, late.jsonl</title>"
tag=$(sed -n 's/^ETag: \(.*\)\r$/\1/p' answer)
sleep 1
request GET / "$own" "If-None-Match: $tag" >answer
check "an unchanged page is not sent again" [ "$(head -1 answer)" = $'HTTP/1.1 304 Not Modified\r' ]
sed 's/"lm_loss": [^,]*/"lm_loss": 77/' two.jsonl >late.jsonl
for _ in {1..60}; do # until the server has read the new file
  sleep 1
  request GET / "$own" "If-None-Match: $tag" >answer
  if grep -q "77.0000 at 12" answer; then break; fi
done
holds answer "77.0000 at 12"
request HEAD / "$own" >answer
check "HEAD has no page" [ "$(tail -c 4 answer | od -An -c | tr -d ' ')" = '\r\n\r\n' ]
request GET / "Host: evil.example" >answer
holds answer "HTTP/1.1 421 Misdirected Request"
request GET /lives "$own" >answer
holds answer "HTTP/1.1 404 Not Found"
request POST / "$own" >answer
holds answer "HTTP/1.1 405 Method Not Allowed"
printf 'nonsense\r\n\r\n' >"/dev/tcp/127.0.0.1/$port"
request GET / "$own" >answer
holds answer "HTTP/1.1 200 OK"
refused 2 "serving at --host 127.0.0.1 --port $port failed: Address already in use. Try another port" 1 report one --follow --port "$port"
kill -INT $server 2>/dev/null
kill -TERM $server
wait $server
check "SIGTERM ends the server" [ $? = 143 ]
