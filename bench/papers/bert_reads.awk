# Makes texts from files of RACE's shape, JSON with "article", "questions", "options" and "answers" on each line.
# usage: awk -v copies=N -f bert_reads.awk FILE...      the same list of files twice
# Prints each line, and N copies in which choices that can stand for each other are exchanged: names for names, days for days.
# Choices can stand for each other where a question offers both. A copy exchanges them in the article, too.
# awk -v statements=1 -f bert_reads.awk FILE... prints each question with its right choice, and the article behind, as the text
# of a document of two sentences.

# strings_of(KEY): the strings of that member of the line, in order, in list[1..]; returns their number. Escapes stay.
function strings_of(key,   rest, depth, n) {
  split("", list)
  if (!match($0, "\"" key "\" *: *")) return 0
  rest = substr($0, RSTART + RLENGTH)
  do {
    if (match(rest, /^"([^"\\]|\\.)*"/)) {
      list[++n] = substr(rest, 2, RLENGTH - 2)
      rest = substr(rest, RLENGTH + 1)
    } else {
      depth += (rest ~ /^\[/) - (rest ~ /^\]/)
      rest = substr(rest, 2)
    }
  } while (depth > 0 && rest != "")
  return n
}

# The choice that stands for the group of `choice`.
function group_of(choice) {
  while (group[choice] != choice) choice = group[choice]
  return choice
}
function note_choices(   n, i) {
  n = strings_of("options")
  for (i = 1; i <= n; i++) {
    if (!(list[i] in group)) {
      group[list[i]] = list[i]
      choice[++choices] = list[i]
    }
    group[group_of(list[i])] = group_of(list[i - (i - 1) % 4])
  }
}
function index_choices(   i, g, first) {
  for (i = 1; i <= choices; i++) {
    g = group_of(choice[i])
    member[g, ++size[g]] = choice[i]
    if (match(choice[i], /^[A-Za-z-]+/)) {
      first = substr(choice[i], 1, RLENGTH)
      begins[first, ++beginning[first]] = choice[i]
    }
  }
}
# Draws a new order of every group.
function shuffle(   g, i, j, moved, order) {
  for (g in size) {
    for (i = 1; i <= size[g]; i++) order[i] = member[g, i]
    for (i = size[g]; i > 1; i--) {
      j = int(rand() * i) + 1
      moved = order[i]
      order[i] = order[j]
      order[j] = moved
    }
    for (i = 1; i <= size[g]; i++) to[member[g, i]] = order[i]
  }
}
# The line with every choice replaced; the longest one where several begin at a word. Keys and answers stay.
function exchanged(text,   out, word, i, candidate, found) {
  while (match(text, /"[a-z]+" *:|"[A-D]"|\\.|[A-Za-z-]+/)) {
    out = out substr(text, 1, RSTART - 1)
    word = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART)
    found = ""
    for (i = 1; i <= beginning[word]; i++) {
      candidate = begins[word, i]
      if (length(candidate) > length(found) && index(text, candidate) == 1 &&
          substr(text, length(candidate) + 1, 1) !~ /[A-Za-z-]/) found = candidate
    }
    out = out (found == "" ? word : to[found])
    text = substr(text, length(found == "" ? word : found) + 1)
  }
  return out text
}

# A choice replaces the first "_" of its question, or follows the question.
function print_statements(   article, n, question, right, i, answer) {
  strings_of("article")
  article = list[1]
  n = strings_of("questions")
  for (i = 1; i <= n; i++) question[i] = list[i]
  strings_of("answers")
  for (i = 1; i <= n; i++) right[i] = 4 * i - 4 + index("ABCD", list[i])
  strings_of("options")
  for (i = 1; i <= n; i++) {
    answer = list[right[i]]
    gsub(/&/, "\\\\&", answer)
    if (!sub(/_/, answer, question[i])) question[i] = question[i] " " list[right[i]]
    # The empty line ends a sentence; a mark before lower case does not.
    print "{\"text\": \"" tolower(question[i] "\\n\\n" article) "\"}"
  }
}

BEGIN { srand(1) }
statements { print_statements(); next }
!second_pass && (FILENAME in seen) && FNR == 1 { second_pass = 1; index_choices() }
!second_pass { seen[FILENAME] = 1; note_choices(); next }
{
  print
  for (copy = 1; copy <= copies; copy++) {
    shuffle()
    print exchanged($0)
  }
}
