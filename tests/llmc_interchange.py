"""Compares models of llm.c with their imports; tests/interchange.sh calls it.

usage: llmc_interchange.py TRIREME CHECKOUT; works in the present folder, and reads llm.c's repository in CHECKOUT

llm.c's own train_gpt2.py makes the model and writes both versions of its file. Where there is a C compiler, its
train_gpt2.c reads one of them, too.
"""
import pathlib
import shutil
import subprocess
import sys
import types

import torch

import interchange
from interchange import PROMPT, SENTENCES, check, close, compare, make_tokenizer, run, tensors_of

CHECKOUT = sys.argv[2]
sys.path.insert(0, CHECKOUT)
import train_gpt2

NEW_TOKENS = 20
PROGRAM = r"""
#define TESTING  // without its main
#include "train_gpt2.c"

// usage: reader MODEL PROMPT NEW ID...: prints the mean loss of the ids, then NEW likeliest tokens after the first
// PROMPT ids. The model runs on as many positions each time.
int main(int argc, char **argv) {
  int ids[1024];
  const int prompt = atoi(argv[2]), end = prompt + atoi(argv[3]), positions = argc - 5;
  for (int i = 0; i <= positions; ++i) ids[i] = atoi(argv[i + 4]);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  gpt2_forward(&model, ids, ids + 1, 1, positions);
  printf("result %.9g", model.mean_loss);
  for (int at = prompt; at < end; ++at) {
    gpt2_forward(&model, ids, NULL, 1, positions);
    const float *probabilities = model.acts.probs + (size_t)(at - 1) * model.config.padded_vocab_size;
    ids[at] = 0;
    for (int token = 1; token < model.config.vocab_size; ++token) {
      if (probabilities[token] > probabilities[ids[at]]) ids[at] = token;
    }
    printf(" %d", ids[at]);
  }
  printf("\n");
  return 0;
}
"""


class Model:
    """llm.c's model with the functions of transformers' that interchange.py calls."""

    def __init__(self, model):
        self.model = model

    def __call__(self, ids):
        return types.SimpleNamespace(logits=self.model(ids, targets=ids)[0])

    def generate(self, input_ids, max_new_tokens, **_):
        for _ in range(max_new_tokens):
            input_ids = torch.cat([input_ids, self(input_ids).logits[:, -1:].argmax(-1)], 1)
        return input_ids


def make_model(tokenizer):
    model = train_gpt2.GPT(train_gpt2.GPTConfig(block_size=128, n_layer=3, n_head=4, n_embd=64)).eval()
    torch.manual_seed(3)
    # Its writer takes 50257 tokens only. Those without a text that can be read are never the likeliest.
    unlikely = [token for token in range(50257) if not tokenizer.decode([token]).isprintable() or
                not tokenizer.decode([token]).isascii() or token == tokenizer.eos_token_id or token >= len(tokenizer)]
    with torch.no_grad():
        for parameter in model.parameters():  # its biases begin as zeros, its norms as ones
            parameter.add_(0.2 * torch.randn(parameter.shape))
        model.transformer.wte.weight[unlikely] *= 0.1
    return model


def as_exported(name, tensor):
    """A tensor of llm.c as transformers has it: its linear layers hold [inputs, outputs]."""
    return tensor.T if tensor.dim() == 2 and '.h.' in name else tensor


def compare_with_c(checkpoint, tokenizer):
    """Loss and continuation of a text by train_gpt2.c."""
    compiler = shutil.which('cc')
    if compiler is None:
        print('skipped: train_gpt2.c: there is no C compiler')
        return
    pathlib.Path('reader.c').write_text(PROGRAM)
    # Optimised as its Makefile does: else it sums the softmax's 50257 terms one by one in fp32.
    subprocess.run([compiler, '-Ofast', '-w', '-I', CHECKOUT, 'reader.c', '-o', 'reader', '-lm'], check=True)
    text = SENTENCES[0]
    ids, prompt = tokenizer(text)['input_ids'], tokenizer(PROMPT)['input_ids']
    printed = subprocess.run(['./reader', 'llmc/fp32.bin', *map(str, [len(prompt), NEW_TOKENS, *ids])], check=True,
                             capture_output=True, text=True).stdout
    loss, *tokens = printed.splitlines()[-1].removeprefix('result ').split()
    pathlib.Path('one.txt').write_text(text, encoding='utf-8')
    ours = interchange.json.loads(run('eval', '--load', checkpoint, '--task', 'WIKITEXT103', '--data-path', 'one.txt',
                                      '--seq-length', len(ids) - 1, '--dtype', 'fp32', '--backend', 'cpu'))
    check('llm.c fp32: loss of its C code', ours['tokens'] == len(ids) - 1 and close(ours['loss'], float(loss), 1e-5),
          (ours, loss))
    ours = run('generate', '--load', checkpoint, '--prompt', PROMPT, '--max-new-tokens', NEW_TOKENS, '--temperature', 0,
               '--dtype', 'fp32', '--backend', 'cpu')
    theirs = tokenizer.decode(prompt + [int(token) for token in tokens]) + '\n'
    check('llm.c fp32: greedy continuation of its C code', ours == theirs, (ours, theirs))


def main():
    tokenizer = make_tokenizer('gpt2')
    tokenizer.save_pretrained('llmc')
    model = make_model(tokenizer)
    for dtype, its_name, version in [('fp32', 'float32', 3), ('bf16', 'bfloat16', 5)]:
        file, name = f'llmc/{dtype}.bin', f'llm.c {dtype}'
        train_gpt2.write_model(model, file, its_name)
        check(f'{name}: version {version}', pathlib.Path(file).read_bytes()[4] == version)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.to(getattr(torch, its_name)))
        run('checkpoint', 'import', '--format', 'llm.c', '--input', file, '--output', f'llmc-{dtype}')
        run('checkpoint', 'export', '--load', f'llmc-{dtype}', '--output', f'llmc-{dtype}-export')
        exported = tensors_of(f'llmc-{dtype}-export')
        theirs = dict(model.named_parameters())
        check(f'{name}: its tensors, bit by bit', exported.keys() == theirs.keys() and all(
            torch.equal(exported[key], as_exported(key, tensor)) for key, tensor in theirs.items()),
            exported.keys() ^ theirs.keys())
        compare(name, f'llmc-{dtype}', Model(model), tokenizer)
        if dtype == 'fp32':
            compare_with_c('llmc-fp32', tokenizer)
    print(f'{interchange.checks} checks, {interchange.failures} failed (llm.c)')
    return interchange.failures > 0


if __name__ == '__main__':
    sys.exit(main())
