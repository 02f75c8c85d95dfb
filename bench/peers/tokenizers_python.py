"""Times the tokenizers of Python's packages on given texts, in memory and on one core.

Usage: tokenizers_python.py ENCODER_JSON VOCAB_BPE REPETITIONS TEXT...    GPT-2's: tiktoken, tokenizers, fastokens, gigatoken
       tokenizers_python.py TOKENIZER_JSON - REPETITIONS TEXT...          another BPE: without tiktoken
       tokenizers_python.py VOCAB_TXT wordpiece REPETITIONS TEXT...       BERT's WordPiece: tokenizers

Prints for each text and library a line "library text bytes tokens seconds", the processor seconds of each repetition after a first
that does not count, but fills the libraries' caches. Packages that are not installed are left out, and nothing is downloaded.
"""

import importlib.util
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of_character():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def tiktoken_encoding(encoder_json):
    import tiktoken

    table = byte_of_character()
    with open(encoder_json, encoding="utf-8") as file:
        vocabulary = json.load(file)
    end = vocabulary.pop("<|endoftext|>")
    ranks = {bytes(table[c] for c in token): rank for token, rank in vocabulary.items()}
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})


def peers_of(vocabulary, merges):
    """Returns functions from a text, as str and as bytes, to its number of tokens."""
    has = {name: importlib.util.find_spec(name) for name in ("tiktoken", "tokenizers", "fastokens", "gigatoken")}
    import tokenizers

    if merges == "wordpiece":
        bert = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
        bert._tokenizer.encode_special_tokens = True
        return {"tokenizers": lambda text, _: len(bert.encode(text, add_special_tokens=False).ids)}
    hugging_face = (
        tokenizers.Tokenizer.from_file(vocabulary)
        if merges == "-"
        else tokenizers.ByteLevelBPETokenizer(vocabulary, merges)._tokenizer
    )
    hugging_face.encode_special_tokens = True  # their names in text are text
    peers = {"tokenizers": lambda text, _: len(hugging_face.encode(text, add_special_tokens=False).ids)}
    if has["tiktoken"] and merges != "-":
        encoding = tiktoken_encoding(vocabulary)
        peers["tiktoken"] = lambda text, _: len(encoding.encode_ordinary(text))
    if has["fastokens"]:
        import fastokens

        fast = fastokens.Tokenizer.from_json_str(hugging_face.to_str())
        peers["fastokens"] = lambda text, _: len(fast.encode_batch_flat([text], split_special_tokens=True)[0]) // 4
    if has["gigatoken"]:
        import gigatoken

        giga = gigatoken.Tokenizer.from_json(hugging_face.to_str())
        peers["gigatoken"] = lambda _, data: len(giga.encode_batch([data], parallel=False)[0])
    return peers


def main():
    vocabulary, merges, repetitions, *texts = sys.argv[1:]
    peers = peers_of(vocabulary, merges)
    for path in texts:
        with open(path, "rb") as file:
            data = file.read()
        text = data.decode()
        for name, count in peers.items():
            for repetition in range(int(repetitions) + 1):
                start = time.process_time()
                tokens = count(text, data)
                seconds = time.process_time() - start
                if repetition > 0:
                    print(name, os.path.basename(path), len(data), tokens, f"{seconds:.6f}", flush=True)


if __name__ == "__main__":
    main()
