#!/bin/bash
# Cleaning of text and its overlap with test sets: the same on any number of ranks, refusals, kills.
source "$(dirname "$0")/functions.sh"

# Documents of different lengths, some of them twice, some with one word changed.
make_documents() {
  awk -v documents="$1" 'BEGIN {
    srand(3)
    for (d = 0; d < documents; ++d) {
      text = "document " d
      for (w = 0; w < 5 + rand() * 60; ++w) text = text sprintf(" w%d", rand() * 100000)
      print "{\"id\": " d ", \"text\": \"" text "\"}"
      if (d % 7 == 0) print "{\"id\": \"again " d "\", \"text\": \"" text "\"}"
      if (d % 5 == 0) print "{\"id\": \"near " d "\", \"text\": \"" text " changed\"}"
    }
  }'
}
make_documents 300 >a.jsonl
make_text 1 >b.jsonl
gzip -k a.jsonl
clean=(corpus clean --input a.jsonl b.jsonl --tokenizer bytes --min-tokens 100)
for ranks in 1 3; do
  done_by $ranks "${clean[@]}" --output clean-$ranks.jsonl --report report-$ranks.jsonl
  check "$ranks ranks sum up once" [ "$(grep -c 'near duplicates' err)" -eq 1 ]
  check "$ranks ranks keep what one keeps" cmp clean-1.jsonl clean-$ranks.jsonl
  check "$ranks ranks report what one reports" cmp report-1.jsonl report-$ranks.jsonl
done
check "documents are missing from the output" [ "$(wc -l <clean-1.jsonl)" -lt "$(cat a.jsonl b.jsonl | wc -l)" ]
check "each document is in the output or the report" \
  [ "$(cat clean-1.jsonl report-1.jsonl | wc -l)" -eq "$(cat a.jsonl b.jsonl | wc -l)" ]
check "exact duplicates are named with what was kept" \
  grep -q '"id":"again [0-9]*","reason":"exact duplicate","kept":[0-9]*,"kept_id":' report-1.jsonl
check "short documents are named with their tokens" grep -q '"reason":"short","tokens":[1-9]' report-1.jsonl
check "a line is kept as it is" grep -qxFf <(head -3 clean-1.jsonl) a.jsonl
done_by 2 corpus clean --input a.jsonl.gz b.jsonl --tokenizer bytes --min-tokens 100 --output packed.jsonl --workers 2
check "compressed input gives the same" cmp clean-1.jsonl packed.jsonl
done_by 1 "${clean[@]}" --output other.jsonl --seed 99
check "another seed finds the same here" cmp clean-1.jsonl other.jsonl
done_by 1 corpus clean --input a.jsonl --min-tokens 0 --jaccard 1 --output exact.jsonl
check "without near duplicates only equal texts go" [ "$(wc -l <exact.jsonl)" -eq 360 ]

head -20 a.jsonl | tail -5 >test.jsonl
for ranks in 1 3; do
  done_by $ranks corpus overlap --corpus a.jsonl b.jsonl --test test.jsonl b.jsonl --ngram 5 \
    --output without-$ranks.jsonl --min-piece 1 --margin 0
  cp out overlap-$ranks
  check "$ranks ranks find the overlap that one finds" cmp overlap-1 overlap-$ranks
  check "$ranks ranks write what one writes" cmp without-1.jsonl without-$ranks.jsonl
done
check "a test that is in the corpus overlaps whole" [ "$(field percent overlap-1 | sort -u)" = 100.0 ]
check "what overlapped is gone" [ "$(grep -cFf test.jsonl without-1.jsonl)" -eq 0 ]
done_by 2 corpus overlap --corpus without-1.jsonl --test test.jsonl --ngram 5
check "and overlaps no more" [ "$(field overlapping out)" -eq 0 ]

# Names of keys and formats that are not the default ones.
printf '{"name": "n%d", "body": "the same text"}\n' 1 2 >named.jsonl
done_by 1 corpus clean --input named.jsonl --json-key body --id-key name --min-tokens 0 --output x.jsonl --report named.report
check "--id-key names the documents" grep -q '"id":"n2","reason":"exact duplicate","kept":.*"kept_id":"n1"' named.report
sed 's/"text"/"body"/' test.jsonl >test.txt
done_by 1 corpus overlap --corpus a.jsonl --test test.txt --test-format json --test-json-key body --ngram 5
check "--test-format and --test-json-key say where the test set is" [ "$(field overlapping out)" -gt 0 ]
rm x.jsonl

# Filters of quality, addresses and words.
awk '{ sub(/"text"/, "\"link\": \"https://host" NR % 4 ".example/\" , \"text\""); print }' b.jsonl a.jsonl >linked.jsonl
printf '\xef\xbb\xbfhost3.example\n' >urls.txt # with a byte order mark
echo w1234 >words.txt
filters=(corpus clean --input linked.jsonl --min-tokens 0 --jaccard 1 --quality-filters gopher-quality,fineweb
  --quality-bounds gopher-quality.min-words=10,gopher-quality.min-alphabetic-words=0.5,gopher-quality.min-stop-words=0,fineweb.min-punctuated-lines=0
  --blocked-urls urls.txt --url-key link --blocked-words words.txt)
for ranks in 1 3; do
  done_by $ranks "${filters[@]}" --output filtered-$ranks.jsonl --report filtered-$ranks.report
  check "$ranks ranks filter as one does" cmp filtered-1.jsonl filtered-$ranks.jsonl
  check "$ranks ranks report what one reports" cmp filtered-1.report filtered-$ranks.report
  check "$ranks ranks count each rule once" [ "$(grep -c 'removed .* documents (.*): gopher-quality.min-words' err)" -eq 1 ]
done
check "blocked addresses are reported, a quarter of all" \
  [ "$(grep -c '"reason":"blocked url"' filtered-1.report)" -eq $(($(wc -l <linked.jsonl) / 4)) ]
check "rules are reported with their values" grep -q '"reason":"gopher-quality.min-words","value":[0-9]}' filtered-1.report

# Wikipedia without the articles of a test set, and stories without the line feeds in their sentences.
printf '%s\n' '{"title":"Du Fu","text":"a poet"}' '{"title":null,"text":"the\nold  ship.\nIt"}' \
  '{"heading":"Nero","text":"b"}' >wiki.jsonl
printf ' \n = Du Fu = \n \n A poet . \n = Nero = \n' >wiki.test.raw
titled=(corpus clean --input wiki.jsonl --min-tokens 0 --join-lines --blocked-titles wiki.test.raw)
for ranks in 1 2; do
  done_by $ranks "${titled[@]}" --output titled.jsonl --report titled.report
  check "$ranks ranks: one article goes" [ "$(cat titled.report)" = '{"document":0,"id":null,"reason":"blocked title"}' ]
  check "$ranks ranks: one line feed goes" [ "$(head -n 1 titled.jsonl)" = '{"title":null,"text":"the old ship.\nIt"}' ]
  check "$ranks ranks: documents without a title are counted" grep -q '2 documents have no title (66.67%)' err
done
done_by 1 "${titled[@]}" --title-key heading --output titled.jsonl --report titled.report
check "another key" [ "$(cat titled.report)" = '' ]
rm titled.* wiki.test.raw

# Lines and sentences that an earlier document has.
make_documents 200 | sed 's/ w[0-9]*5 w/&\\nHome page\\nA b. C d? E f! /' >parts.jsonl
for part in lines sentences; do
  for ranks in 1 3; do
    done_by $ranks corpus clean --input parts.jsonl --min-tokens 0 --repeated-text $part --min-rest-words 10 \
      --min-rest-sentences 1 --output $part-$ranks.jsonl --report $part-$ranks.report
    check "$ranks ranks leave out the $part that one leaves out" cmp $part-1.jsonl $part-$ranks.jsonl
    check "$ranks ranks report the $part that one reports" cmp $part-1.report $part-$ranks.report
  done
  check "$part: the log counts documents that became short" grep -q 'removed [0-9]* documents (.*): short rest' err
done
check "one line of many stays" [ "$(grep -c 'Home page' lines-1.jsonl)" -eq 1 ]
printf '{"text":"One ship. Two oars? Three sails! %s"}\n' 'Home now.' 'One ship.' >three.jsonl
done_by 1 corpus clean --input three.jsonl --min-tokens 0 --jaccard 1 --repeated-text sentences --min-rest-words 2 --min-rest-sentences 1 --output rest.jsonl
check "three sentences go together" [ "$(tail -n 1 rest.jsonl)" = '{"text":"One ship."}' ]
done_by 1 corpus clean --input lines-1.jsonl --min-tokens 0 --jaccard 1 --repeated-text lines --repeated-span 2 --output two.jsonl
check "longer spans occur once" cmp lines-1.jsonl two.jsonl

# Conversations, by the text of their messages.
cat >chat.jsonl <<'LINES'
{"messages": [{"role":"user","content":"Where does the ship lie?"}, {"role":"assistant", "content":"At the quay, with her oars inboard."}], "n": 1.50}
{"id": "again","conversations":[{"from":"human","value":"Where does the ship lie?"},{"from":"gpt","value":"At the quay, with her oars inboard."}]}
{"messages":[{"role":"user","content":[{"type":"text","text":"Where does the ship lie?"}]},{"role":"assistant","content":null,"tool_calls":[{"name":"look"}]}]}
{"messages":[{"role":"user","content":"Where?"}]}
{"messages":[{"role":"user","content":"Where does the ship lie?"},{"role":"assistant","content":"At the quay, with all oars inboard."}]}
LINES
for ranks in 1 2; do
  done_by $ranks corpus clean --chat --input chat.jsonl --output talks.jsonl --report talks.report --tokenizer bytes --min-tokens 10
  check "$ranks ranks: conversations that stay are unchanged" cmp talks.jsonl <(sed -n '1p;3p' chat.jsonl)
  check "$ranks ranks: equal texts" grep -q '"document":1,"id":"again","reason":"exact duplicate","kept":0' talks.report
  check "$ranks ranks: similar texts" grep -q '"document":4,"id":null,"reason":"near duplicate","kept":0' talks.report
  check "$ranks ranks: short texts" grep -q '"document":3,"id":null,"reason":"short","tokens":6' talks.report
done

# Bad usage, bad input, on one rank and several: one message, and nothing left behind.
names=$(ls; echo bad.jsonl)
new() { ls | grep -vxF "$names" | grep -vxE 'out|err'; }
refused 2 "a.jsonl is both input and output" 2 corpus clean --input a.jsonl --output a.jsonl --min-tokens 0
refused 2 "--language-confidence 0.7 needs --language" 2 corpus clean --input a.jsonl --output x.jsonl \
  --min-tokens 0 --language-confidence 0.7
refused 2 "--quality-bounds needs --quality-filters" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 \
  --quality-bounds c4.min-sentences=3
refused 2 "--repeated-span needs --repeated-text" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 --repeated-span 2
refused 2 "--chat and --join-lines exclude each other" 2 corpus clean --input chat.jsonl --output x.jsonl --min-tokens 0 --chat --join-lines
refused 2 "--chat and --quality-filters c4 exclude each other" 2 corpus clean --input chat.jsonl --output x.jsonl --min-tokens 0 --chat \
  --quality-filters fineweb,c4
refused 3 "a.jsonl:1: a conversation needs at least one message" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 --chat
refused 2 "there is no quality filter 'c5'" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 --quality-filters c5
refused 2 "--classifier needs --classifier-labels" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 --classifier m.bin
refused 2 "give hq=P with a probability P from 0 to 1" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 \
  --classifier m.bin --classifier-labels hq=2
refused 3 "documents has an address under the key 'url': give the right one by --url-key" 2 corpus clean --input a.jsonl --output x.jsonl --min-tokens 0 --blocked-urls urls.txt
refused 3 "documents has a title under the key 'title': give the right one by --title-key" 2 corpus clean --input a.jsonl \
  --output x.jsonl --min-tokens 0 --blocked-titles urls.txt
refused 2 "--margin needs --output" 2 corpus overlap --corpus a.jsonl --test b.jsonl --margin 3
refused 3 "nothing is left of" 2 corpus clean --input a.jsonl --tokenizer bytes --min-tokens 100000 --output x.jsonl
refused 5 "absent.jsonl: No such file or directory" 2 corpus clean --input absent.jsonl --output x.jsonl --min-tokens 0
refused 5 "absent/x.jsonl" 2 "${clean[@]}" --output absent/x.jsonl
refused 3 "has no key 'body'" 4 "${clean[@]}" --output x.jsonl --json-key body
{ cat a.jsonl && echo '{"text": "cut'; } >bad.jsonl
bad_line=$(wc -l <bad.jsonl)
refused 3 "bad.jsonl:$bad_line:" 2 corpus clean --input bad.jsonl --output x.jsonl --min-tokens 0
refused 3 "more than the 0 bad lines" 2 corpus clean --input bad.jsonl --output x.jsonl --min-tokens 0 \
  --on-bad-line skip --max-bad-lines 0
refused 3 "none of the" 2 corpus overlap --corpus a.jsonl --test b.jsonl --ngram 999
check "nothing was left behind: $(new)" [ -z "$(new)" ]
for ranks in 1 3; do
  done_by $ranks corpus clean --input bad.jsonl --output good-$ranks.jsonl.zst --min-tokens 0 --on-bad-line skip
  check "$ranks ranks say which lines they skip" grep -q "skipped bad.jsonl:$bad_line:" err
  zstd -dqf good-$ranks.jsonl.zst
  check "$ranks ranks pack what one packs" cmp good-1.jsonl good-$ranks.jsonl
done

# Standard input, with and without a report.
head -50 good-1.jsonl | "$trireme" corpus clean --input - --min-tokens 0 --output piped.jsonl >out 2>err
check "documents come from a pipe: $?" [ -s piped.jsonl ]
head -50 good-1.jsonl | "$trireme" corpus overlap --input - --test piped.jsonl >out 2>err
check "overlap reads one, too: $?" grep -q . out
refused 2 "x.jsonl is both" 1 corpus clean --input big.jsonl --min-tokens 0 --output x.jsonl --report ./x.jsonl

# Killed at any time: the output is complete or absent, and the next run removes the remains.
make_documents 4000 >big.jsonl
done_by 1 corpus clean --input big.jsonl --min-tokens 0 --output whole.jsonl
for delay in 0.05 0.1 0.3; do
  rm -f killed.jsonl
  "$trireme" corpus clean --input big.jsonl --min-tokens 0 --output killed.jsonl >out 2>err &
  killed=$!
  sleep $delay
  kill -9 $killed 2>/dev/null
  wait $killed 2>/dev/null
  check "killed after $delay s: nothing, or all of it" eval '[ ! -e killed.jsonl ] || cmp whole.jsonl killed.jsonl'
done
rm -rf killed.jsonl killed.jsonl.partial
"$trireme" corpus clean --input big.jsonl --min-tokens 0 --output killed.jsonl >out 2>err &
stopped=$!
for ((i = 0; i < 3000; ++i)); do [ -e killed.jsonl.partial/documents-0 ] && break; sleep 0.01; done
kill -STOP $stopped
refused 4 "in use by another job" 2 corpus clean --input big.jsonl --min-tokens 0 --output killed.jsonl
kill -CONT $stopped
wait $stopped
check "the first of two at once ends well: $?" cmp whole.jsonl killed.jsonl
check "nothing is left" [ -z "$(ls -d killed.jsonl.* 2>/dev/null)" ]
