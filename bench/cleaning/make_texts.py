"""usage: make_texts.py KIND MEGABYTES BOOK... >FILE.jsonl

Writes lines of JSON, the same each time, for bench/cleaning/run.sh. Kinds: `prose` and `short`, random sentences of the
books, 4.2 and 1 kB a document; `templatesN`, 20 texts of 25 sentences, of which each document has one with every N-th
word replaced at random; `code`, the sources of Python's and C++'s standard libraries on this machine, a file a document."""
import glob
import json
import os
import random
import re
import sys


def sentences_of(books):
    text = "\n".join(open(book, encoding="utf-8").read() for book in books)
    sentences = [" ".join(sentence.split()) for sentence in re.split(r"(?<=[.!?])\s+", text)]
    return [sentence for sentence in sentences if 20 < len(sentence) < 600]


def prose(size, source, books):
    sentences = sentences_of(books)
    while True:
        text = ""
        while len(text) < size:
            text += source.choice(sentences) + " "
        yield text[:-1]


def templates(every, source, books):
    sentences = sentences_of(books)
    words = [word for sentence in sentences for word in sentence.split()]
    texts = [[word for _ in range(25) for word in source.choice(sentences).split()] for _ in range(20)]
    while True:
        text = source.choice(texts)
        yield " ".join(source.choice(words) if source.random() * every < 1 else word for word in text)


def code():
    for pattern in ("/usr/lib/python3*/**/*.py", "/usr/local/lib/python3*/**/*.py", "/usr/include/c++/**/*"):
        for path in sorted(glob.glob(pattern, recursive=True)):
            try:
                text = open(path, encoding="utf-8").read() if os.path.isfile(path) else ""
            except UnicodeDecodeError:
                continue
            if text:
                yield text


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    kind, wanted, books = sys.argv[1], float(sys.argv[2]) * 1e6, sys.argv[3:]
    source = random.Random(1)
    if kind == "code":
        texts = code()
    elif kind.startswith("templates"):
        texts = templates(int(kind[len("templates"):]), source, books)
    else:
        texts = prose({"prose": 4200, "short": 1000}[kind], source, books)
    written = 0
    for number, text in enumerate(texts):
        line = json.dumps({"id": number, "text": text}, ensure_ascii=False) + "\n"
        written += len(line.encode())
        sys.stdout.write(line)
        if written >= wanted:
            break


main()
