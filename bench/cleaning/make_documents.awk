# usage: awk -v documents=N -f make_documents.awk TEXT... >FILE.jsonl
# Documents of 200 words each, in random order of the texts' paragraphs: of ten, one is an earlier one again, and one is an
# earlier one with 5% of its words changed.
{ for (i = 1; i <= NF; ++i) { gsub(/[^A-Za-z,.;]/, "", $i); words[count++] = $i } }
END {
  srand(1)
  for (d = 0; d < documents; ++d) {
    text = ""
    if (d > 100 && d % 10 == 0) {
      text = recent[int(rand() * 100)]
    } else if (d > 100 && d % 10 == 5) {
      n = split(recent[int(rand() * 100)], changed, " ")
      for (i = 1; i <= n; ++i) text = text (rand() < 0.05 ? words[int(rand() * count)] : changed[i]) " "
    } else {
      for (part = 0; part < 5; ++part) {
        start = int(rand() * (count - 40))
        for (i = 0; i < 40; ++i) text = text words[start + i] " "
      }
    }
    recent[d % 100] = text
    printf "{\"id\": %d, \"text\": \"%s\"}\n", d, text
  }
}
