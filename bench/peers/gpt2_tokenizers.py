"""Times GPT-2's tokenizer in tiktoken and in Hugging Face tokenizers, or another one in the latter, on given texts, on one core.

Usage: gpt2_tokenizers.py ENCODER_JSON VOCAB_BPE REPETITIONS TEXT...
       gpt2_tokenizers.py TOKENIZER_JSON - REPETITIONS TEXT...

Prints for each text and library a line "library text bytes tokens seconds", the processor seconds of each repetition after a first
that does not count. The ranks of tiktoken are made from the two files; nothing is downloaded.
"""

import json
import os
import sys
import time

import tiktoken
import tokenizers

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of_character():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def tiktoken_encoding(encoder_json):
    table = byte_of_character()
    with open(encoder_json, encoding="utf-8") as file:
        vocabulary = json.load(file)
    end = vocabulary.pop("<|endoftext|>")
    ranks = {bytes(table[c] for c in token): rank for token, rank in vocabulary.items()}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})


def main():
    encoder_json, vocab_bpe, repetitions, *texts = sys.argv[1:]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    peers = {}
    if vocab_bpe == "-":
        hugging_face = tokenizers.Tokenizer.from_file(encoder_json)
        hugging_face.encode_special_tokens = True  # their names in text are text
    else:
        hugging_face = tokenizers.ByteLevelBPETokenizer(encoder_json, vocab_bpe)
        peers["tiktoken"] = tiktoken_encoding(encoder_json).encode_ordinary
    peers["tokenizers"] = lambda text: hugging_face.encode(text, add_special_tokens=False).ids
    for path in texts:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        size = len(text.encode())
        for name, encode in peers.items():
            for repetition in range(int(repetitions) + 1):
                start = time.process_time()
                ids = encode(text)
                seconds = time.process_time() - start
                if repetition > 0:
                    print(name, os.path.basename(path), size, len(ids), f"{seconds:.6f}", flush=True)


main()
