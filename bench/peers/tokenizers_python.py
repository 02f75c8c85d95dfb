"""Times the tokenizers of Python's packages on given texts, in memory and on one core.

Usage: tokenizers_python.py ENCODER_JSON VOCAB_BPE REPETITIONS TEXT...    GPT-2's: tiktoken, tokenizers, fastokens, gigatoken
       tokenizers_python.py TOKENIZER_JSON - REPETITIONS TEXT...          another BPE: without tiktoken
       tokenizers_python.py VOCAB_TXT wordpiece REPETITIONS TEXT...       BERT's WordPiece: tokenizers

Prints for each text and library lines "library text call bytes tokens seconds" with processor seconds: up to three times of the first
call of a new tokenizer (`call` is "first"), then of REPETITIONS more calls on the same text ("later"), for which caches are filled.
Each of the two stops after five seconds.
Packages that are not installed are left out, and nothing is downloaded.
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
    """Returns functions by library. Each makes a new tokenizer: a function from a text, as str and as bytes, to its number of tokens."""
    has = {name: importlib.util.find_spec(name) for name in ("tiktoken", "tokenizers", "fastokens", "gigatoken")}
    import tokenizers

    def hugging_face():
        if merges == "wordpiece":
            made = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)._tokenizer
        elif merges == "-":
            made = tokenizers.Tokenizer.from_file(vocabulary)
        else:
            made = tokenizers.ByteLevelBPETokenizer(vocabulary, merges)._tokenizer
        made.encode_special_tokens = True  # their names in text are text
        return made

    def make_tokenizers():
        made = hugging_face()
        return lambda text, _: len(made.encode(text, add_special_tokens=False).ids)

    def make_tiktoken():
        encoding = tiktoken_encoding(vocabulary)
        return lambda text, _: len(encoding.encode_ordinary(text))

    def make_fastokens():
        import fastokens

        fast = fastokens.Tokenizer.from_json_str(definition)
        return lambda text, _: len(fast.encode_batch_flat([text], split_special_tokens=True)[0]) // 4

    def make_gigatoken():
        import gigatoken

        giga = gigatoken.Tokenizer.from_json(definition)
        return lambda _, data: len(giga.encode_batch([data], parallel=False)[0])

    peers = {"tokenizers": make_tokenizers}
    if merges == "wordpiece":
        return peers
    definition = hugging_face().to_str()
    if has["tiktoken"] and merges != "-":
        peers["tiktoken"] = make_tiktoken
    if has["fastokens"]:
        peers["fastokens"] = make_fastokens
    if has["gigatoken"]:
        peers["gigatoken"] = make_gigatoken
    return peers


def main():
    vocabulary, merges, repetitions, *texts = sys.argv[1:]
    repetitions = int(repetitions)
    peers = peers_of(vocabulary, merges)
    for path in texts:
        with open(path, "rb") as file:
            data = file.read()
        text = data.decode()
        for name, make in peers.items():
            spent = {"first": 0.0, "later": 0.0}
            for call in ["first"] * min(repetitions, 3) + ["later"] * repetitions:
                if spent[call] > 5:
                    continue
                if call == "first":
                    count = make()
                start = time.process_time()
                tokens = count(text, data)
                seconds = time.process_time() - start
                spent[call] += seconds
                print(name, os.path.basename(path), call, len(data), tokens, f"{seconds:.6f}", flush=True)


if __name__ == "__main__":
    main()
