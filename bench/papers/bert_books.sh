# Sourced by the scripts that train small BERTs on books.

# book_corpus FOLDER SUBWORDS FILE...
# Makes FOLDER/books.h5 of UTF-8 texts whose paragraphs are separated by empty lines: each paragraph is a document. The last
# twentieth of each text is at the end of the corpus, for --split 19,1,0. Straight quotes become “ or ”. The WordPiece
# vocabulary has the letters, the punctuation of English books, and about SUBWORDS subwords that a BPE finds in these texts.
book_corpus() {
  local folder=$1 subwords=$2
  shift 2
  mkdir -p "$folder"
  LC_ALL=C awk '
    function end_paragraph() {
      if (text != "") document[++documents] = text
      text = ""
    }
    function end_file() {
      end_paragraph()
      for (i = 1; i <= documents; i++) {
        if (i <= documents - int(documents / 20)) print "{\"text\": \"" document[i] "\"}"
        else held_out[++kept] = document[i]
      }
      documents = 0
    }
    FNR == 1 && NR > 1 { end_file() }
    {
      gsub(/\\/, "\\\\")
      gsub(/^"|[ (-]"/, "&“")
      gsub(/"“/, "“")
      gsub(/"/, "”")
      gsub(/[\001-\037]/, " ")
      gsub(/^ +| +$/, "")
      if ($0 == "") end_paragraph()
      else text = text (text == "" ? "" : " ") $0
    }
    END {
      end_file()
      for (i = 1; i <= kept; i++) print "{\"text\": \"" held_out[i] "\"}"
    }' "$@" >"$folder/books.jsonl"
  LC_ALL=C tr A-Z a-z <"$folder/books.jsonl" >"$folder/lower.jsonl"
  "$trireme" tokenizer train --input "$folder/lower.jsonl" --output "$folder/bpe" --vocab-size "$subwords" || return
  {
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' {a..z} {0..9} '!' '"' "'" '(' ')' '*' ',' - . : ';' '?' '[' ']' _ '&' \
      '“' '”' '‘' '’' '—'
    printf '##%s\n' {a..z} {0..9}
    # A subword of the BPE that begins with Ġ begins a word.
    grep -o '"[^"]*":' "$folder/bpe/vocab.json" | tr -d '":' | sed -n -e 's/^Ġ\([a-z][a-z]*\)$/\1/p;t' -e 's/^\([a-z][a-z]*\)$/##\1/p'
  } | awk '!seen[$0]++' >"$folder/vocab.txt"
  "$trireme" corpus build --input "$folder/books.jsonl" --output "$folder/books.h5" --split-sentences \
    --tokenizer wordpiece --vocab-file "$folder/vocab.txt"
}

# unigram_entropy CORPUS OPTION...
# Prints the entropy, in nats, of the tokens that are predicted in the held-out samples. No predictor has a smaller mean loss
# that does not read the sentences around them.
unigram_entropy() {
  "$trireme" corpus samples "$@" --model-type bert --split 19,1,0 --split-by documents --from-split valid | awk '
    match($0, /"labels": \[[^]]*/) {
      n = split(substr($0, RSTART + 11, RLENGTH - 11), label, ",")
      for (i = 1; i <= n; i++) if (label[i] >= 0) { count[label[i] + 0]++; all++ }
    }
    END {
      for (token in count) entropy -= count[token] / all * log(count[token] / all)
      printf "%.4f\n", entropy
    }'
}

# last_value FILE NAME: that number in the last record of FILE that has it.
last_value() {
  awk -v name="$2" 'match($0, "\"" name "\": *[-+.0-9e]+") { value = substr($0, RSTART, RLENGTH); sub(/.*: */, "", value) }
    END { print value }' "$1"
}
