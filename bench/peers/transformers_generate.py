"""Times greedy generation by Hugging Face's transformers, for comparison with `trireme generate --prompts`.

Usage: transformers_generate.py MODEL TYPE THREADS NEW_TOKENS

MODEL is a folder of `trireme checkpoint export`, TYPE fp32 or bf16. Each line of stdin is a batch size and a file of
prompts, JSON lines with "tokens". For each line, prints the tokens per second of all prompts, each continued by
NEW_TOKENS tokens, and writes them to the file of the prompts with ".peer" appended to its name. Batches are cut from the file
in its order; shorter prompts are padded on the left. Nothing is downloaded; versions go to stderr.
"""

import json
import sys
import time

import torch
import transformers


def continue_all(model, prompts, batch, new_tokens):
    results = []
    for begin in range(0, len(prompts), batch):
        part = prompts[begin : begin + batch]
        length = max(map(len, part))
        ids = torch.tensor([[0] * (length - len(tokens)) + tokens for tokens in part])
        mask = torch.tensor([[0] * (length - len(tokens)) + [1] * len(tokens) for tokens in part])
        whole = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens,
                               pad_token_id=0)
        results += whole[:, length:].tolist()
    return results


def main():
    path, dtype, threads, new_tokens = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=types[dtype], local_files_only=True).eval()
    model.generation_config.eos_token_id = None  # each prompt is continued to the end
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}", file=sys.stderr, flush=True)
    with torch.inference_mode():
        continue_all(model, [[1, 2, 3]], 1, 2)  # the first call does not count
        for line in sys.stdin:
            batch, file = line.split(maxsplit=1)
            with open(file.strip(), encoding="utf-8") as lines:
                prompts = [json.loads(prompt)["tokens"] for prompt in lines]
            begin = time.perf_counter()
            results = continue_all(model, prompts, int(batch), new_tokens)
            elapsed = time.perf_counter() - begin
            with open(file.strip() + ".peer", "w", encoding="utf-8") as output:
                output.writelines(f"{json.dumps(tokens)}\n" for tokens in results)
            print(sum(map(len, results)) / elapsed, flush=True)


main()
