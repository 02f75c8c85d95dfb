"""Compares models of Trireme with Hugging Face's libraries; tests/interchange.sh installs these and calls it.

usage: interchange.py TRIREME; works in the present folder
"""
import json
import logging
import pathlib
import subprocess
import sys
import warnings

import peft
import tokenizers
import torch
import transformers
from safetensors import safe_open

TRIREME = sys.argv[1]
# Sentences that a small tokenizer learns from, and texts with what tokenizers stumble over.
SENTENCES = ['The ship rows nine oars, the crew rows ten, and the rest of them sing.',
             "It's 12345 miles; they've gone   far\n\nand we'll follow.", 'Caf\u00e9 na\u00efve \u4e2d\u6587 \u00fcber 7,000!']
TEXT = ' '.join(SENTENCES * 12)
PROMPT = 'The ship'
LLAMA = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64)
BIASED = {key: value for key, value in LLAMA.items() if key != 'num_key_value_heads'}
FALCON = {key: value for key, value in BIASED.items() if key != 'intermediate_size'}
LONG_LLAMA = dict(LLAMA, max_position_embeddings=16384)
DEEPSEEK = dict(LLAMA, num_key_value_heads=4, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                n_routed_experts=8, num_experts_per_tok=4, moe_intermediate_size=32, n_shared_experts=2,
                first_k_dense_replace=1)
CLASSES = {
    'GPT2LMHeadModel': ('gpt2', dict(n_positions=64, n_embd=64, n_layer=2, n_head=4)),
    'LlamaForCausalLM': ('llama3', dict(LONG_LLAMA, rope_theta=500000.0, rope_scaling=dict(
        rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192))),
    'Qwen2ForCausalLM': ('qwen2', dict(LLAMA, tie_word_embeddings=True)),
    'Qwen3ForCausalLM': ('qwen2', dict(LLAMA, head_dim=32)),
    'MistralForCausalLM': ('llama3', dict(LLAMA, sliding_window=16)),
    'Starcoder2ForCausalLM': ('gpt2', dict(LLAMA, sliding_window=16)),
    'Gemma2ForCausalLM': ('llama3', dict(LLAMA, head_dim=32, sliding_window=16)),
    'Gemma3ForCausalLM': ('llama3', dict(LLAMA, head_dim=32, sliding_window=16, rope_theta=1000.0,
                                         layer_types=['sliding_attention', 'full_attention'])),
    'GPTNeoXForCausalLM': ('gpt2', dict(BIASED, rotary_pct=0.5)),
    'FalconForCausalLM': ('gpt2', dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    'MixtralForCausalLM': ('llama3', dict(LLAMA, sliding_window=16)),
    'Qwen3MoeForCausalLM': ('qwen2', dict(LLAMA, head_dim=32, num_experts=4, num_experts_per_tok=2,
                                          moe_intermediate_size=48, mlp_only_layers=[0])),
    'Olmo2ForCausalLM': ('llama3', dict(LLAMA, pad_token_id=None)),
    'OlmoeForCausalLM': ('gpt2', dict(LLAMA, num_experts=4, num_experts_per_tok=2, pad_token_id=None)),
    'DeepseekV2ForCausalLM': ('llama3', dict(DEEPSEEK, q_lora_rank=None, max_position_embeddings=16384,
                                             rope_scaling=dict(rope_type='yarn', factor=4.0, mscale=0.707,
                                                               mscale_all_dim=0.707,
                                                               original_max_position_embeddings=4096))),
    'DeepseekV3ForCausalLM': ('llama3', dict(DEEPSEEK, q_lora_rank=32, n_group=4, topk_group=2)),
    'Phi3ForCausalLM': ('llama3', dict(LLAMA, sliding_window=16, pad_token_id=None)),
}
PATTERNS = {  # as the models' own tokenizer.json spell them
    'llama3': r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    'qwen2': r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+",
}
CHAT = "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + eos_token }}{% endfor %}"
MESSAGES = [dict(role='user', content=' Row! '), dict(role='assistant', content='Aye.')]
checks = failures = 0
transformers.utils.logging.disable_progress_bar()


def check(what, holds, detail=''):
    global checks, failures
    checks += 1
    failures += not holds
    print(f"{'passed' if holds else 'FAILED'}: {what}{'' if holds else ': ' + str(detail)}", flush=True)


def close(actual, expected, tolerance):
    return abs(actual - expected) <= tolerance * max(1, abs(expected))


def run(*arguments):
    done = subprocess.run([TRIREME, *map(str, arguments)], capture_output=True, encoding='utf-8', errors='replace')
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {arguments}\n{done.stderr}")
    return done.stdout


def make_tokenizer(kind):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=kind == 'llama3'))
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == 'gpt2')
    if kind == 'gpt2':
        tokenizer.pre_tokenizer = byte_level
    else:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[kind]), 'isolated')
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level])
    if kind == 'qwen2':
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=['<|endoftext|>'], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES, trainer)
    begin = '<|endoftext|>'
    if kind == 'llama3':  # texts begin with BOS
        begin = '<|begin_of_text|>'
        tokenizer.add_special_tokens([begin])
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            begin + ' $A', f'{begin} $A {begin}:1 $B:1', [(begin, tokenizer.token_to_id(begin))])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|endoftext|>', bos_token=begin,
                                                unk_token='<|endoftext|>', chat_template=CHAT)


class Warnings(logging.Handler):
    """Everything that the libraries warn of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())

    def __enter__(self):
        self.caught = warnings.catch_warnings(record=True)
        self.list = self.caught.__enter__()
        warnings.simplefilter('always')
        for name in ['transformers', 'safetensors']:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *ignored):
        for name in ['transformers', 'safetensors']:
            logging.getLogger(name).removeHandler(self)
        self.texts += [str(warning.message) for warning in self.list]
        self.caught.__exit__(*ignored)


def load(folder, model_class=transformers.AutoModelForCausalLM):
    with Warnings() as seen:
        model = model_class.from_pretrained(folder, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    check(f'{folder} loads without a warning', not seen.texts, seen.texts)
    for parameter in model.parameters():  # in the mapped file its address decides in which order products are summed
        parameter.data = parameter.data.clone()
    return model.eval(), tokenizer


def text_loss(model, ids, window):
    """Mean loss of all tokens but the first, in windows that begin anew."""
    total = 0
    with torch.no_grad():
        for begin in range(0, len(ids) - 1, window):
            part = ids[begin:begin + window + 1]
            logits = model(torch.tensor([part[:-1]])).logits[0]
            total += torch.nn.functional.cross_entropy(logits.double(), torch.tensor(part[1:]), reduction='sum').item()
    return total / (len(ids) - 1)


def last_tokens(model, tokenizer, lines):
    """Number of texts whose last token is the most likely one."""
    with torch.no_grad():
        results = [(ids, model(torch.tensor([ids[:-1]])).logits[0, -1].argmax().item())
                   for ids in (tokenizer(line)['input_ids'] for line in lines)]
    return sum(ids[-1] == likeliest for ids, likeliest in results)


def greedy(model, tokenizer, tokens):
    ids = tokenizer(PROMPT, return_tensors='pt')
    with torch.no_grad():
        output = model.generate(**ids, do_sample=False, max_new_tokens=tokens, pad_token_id=0)
    return tokenizer.decode(output[0], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def tensors_of(folder):
    result = {}
    for file in pathlib.Path(folder).glob('*.safetensors'):
        with safe_open(file, 'pt') as stream:
            result.update((name, stream.get_tensor(name)) for name in stream.keys())
    return result


def same_tensors(a, b):
    a, b = tensors_of(a), tensors_of(b)
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def compare(name, checkpoint, model, tokenizer):
    """A checkpoint of Trireme and a model of transformers: text, last tokens, continuation."""
    pathlib.Path('text.txt').write_text(TEXT, encoding='utf-8')
    lines = [' '.join(TEXT.split(' ')[i:i + 5 + i % 4]) for i in range(40)]
    with open('lines.jsonl', 'w', encoding='utf-8') as file:
        file.writelines(json.dumps({'text': line}) + '\n' for line in lines)
    ids = tokenizer(TEXT)['input_ids']
    ours = json.loads(run('eval', '--load', checkpoint, '--task', 'WIKITEXT103', '--data-path', 'text.txt', '--seq-length',
                          32, '--overlapping-eval', 32, '--dtype', 'fp32', '--backend', 'cpu'))
    check(f'{name}: as many tokens', ours['tokens'] == len(ids) - 1, (ours, len(ids)))
    theirs = text_loss(model, ids, 32)
    check(f'{name}: WikiText loss', close(ours['loss'], theirs, 1e-5), (ours['loss'], theirs))
    ours = json.loads(run('eval', '--load', checkpoint, '--task', 'LAMBADA', '--data-path', 'lines.jsonl', '--dtype', 'fp32',
                          '--backend', 'cpu', '--seq-length', 64))
    theirs = last_tokens(model, tokenizer, lines)
    check(f'{name}: LAMBADA', (ours['correct'], ours['total']) == (theirs, len(lines)), (ours, theirs))
    ours = run('generate', '--load', checkpoint, '--prompt', PROMPT, '--max-new-tokens', 40, '--temperature', 0, '--dtype',
               'fp32', '--backend', 'cpu')
    theirs = greedy(model, tokenizer, 40) + '\n'
    check(f'{name}: greedy continuation', ours == theirs, (ours, theirs))


def round_trip(name, class_name, kind, settings):
    tokenizer = make_tokenizer(kind)
    model_class = getattr(transformers, class_name)
    end = tokenizer.eos_token_id
    torch.manual_seed(1)
    # Rows beyond the tokenizer's are padding, as published models have.
    config = model_class.config_class(vocab_size=len(tokenizer) + 4, bos_token_id=tokenizer.bos_token_id, eos_token_id=end,
                                      **settings)
    model = model_class(config).eval()
    model.generation_config.eos_token_id = [end, tokenizer.bos_token_id]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
        for table in [model.get_input_embeddings().weight, model.get_output_embeddings().weight]:
            table[len(tokenizer):] = 0  # no text has these tokens, and neither has a continuation
    original = f'{name}-original'
    model.save_pretrained(original)
    tokenizer.save_pretrained(original)
    run('checkpoint', 'import', '--input', original, '--output', f'{name}-ours')
    compare(name, f'{name}-ours', model, tokenizer)
    run('checkpoint', 'export', '--load', f'{name}-ours', '--output', f'{name}-export', '--max-shard-size', 0.0001)
    check(f'{name}: several files', len(list(pathlib.Path(f'{name}-export').glob('*.safetensors'))) > 1)
    check(f'{name}: export of import is bit-equal', same_tensors(original, f'{name}-export'))
    again, its_tokenizer = load(f'{name}-export')
    ids = tokenizer(TEXT)['input_ids']
    check(f'{name}: the exported tokenizer is the same', its_tokenizer(TEXT).data == tokenizer(TEXT).data and
          its_tokenizer.decode(ids, skip_special_tokens=True) == TEXT and
          its_tokenizer.apply_chat_template(MESSAGES) == tokenizer.apply_chat_template(MESSAGES))
    ends = [transformers.GenerationConfig.from_pretrained(folder).to_dict() for folder in [original, f'{name}-export']]
    check(f'{name}: generation ends alike', ends[0] == ends[1], ends)
    with torch.no_grad():
        inputs = torch.tensor([ids[:60]])
        check(f'{name}: the exported model is the same', torch.equal(again(inputs).logits, model(inputs).logits))
    check(f'{name}: the exported model continues in the same way', greedy(again, its_tokenizer, 30) == greedy(
        model, tokenizer, 30))
    adapted(name)
    # Padding that is left out on import.
    run('checkpoint', 'import', '--input', original, '--output', f'{name}-cut', '--vocab-size', len(tokenizer))
    run('checkpoint', 'export', '--load', f'{name}-cut', '--output', f'{name}-cut-export')
    cut, _ = load(f'{name}-cut-export')
    check(f'{name}: padding is left out', cut.get_input_embeddings().weight.shape[0] == len(tokenizer))


def adapted(name):
    """Adapters that were trained here on an imported model: PEFT computes with them what the merged model does."""
    # PEFT takes names of dense layers and shared blocks for the experts', and has one A for a Falcon's grouped queries, keys
    # and values. A Phi-3 that was trained further is exported as a Mistral, whose other layers have the same names.
    targets = {**dict.fromkeys(['qwen3moe', 'deepseekv2', 'deepseekv3'], ['qkv', 'proj']),
               'falcon': ['proj', 'fc1', 'fc2'], 'phi3': ['proj', 'fc2']}.get(name, ['all-linear'])
    run('train', '--finetune', '--load', f'{name}-ours', '--use-checkpoint-args', '--mock-data', '--seq-length', 32,
        '--global-batch-size', 4, '--lr', 0.02, '--train-iters', 5, '--eval-iters', 0, '--backend', 'cpu', '--lora-rank', 3,
        '--lora-alpha', 5, '--lora-targets', *targets, '--save', f'{name}-adapted')
    run('checkpoint', 'export', '--load', f'{name}-adapted', '--output', f'{name}-merged')
    run('checkpoint', 'export', '--load', f'{name}-adapted', '--output', f'{name}-peft', '--lora-adapter')
    load_plainly = lambda folder: transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation='eager', experts_implementation='eager').eval()
    merged, base = load_plainly(f'{name}-merged'), load_plainly(f'{name}-original')
    inputs = torch.arange(4, 36).reshape(1, -1)
    with torch.no_grad(), Warnings() as seen:
        wanted, before = merged(inputs).logits, base(inputs).logits
        actual = peft.PeftModel.from_pretrained(base, f'{name}-peft')(inputs).logits
    largest = wanted.abs().max()
    check(f'{name}: PEFT computes with adapters what the merged model does', (actual - wanted).abs().max() < 1e-4 * largest,
          ((actual - wanted).abs().max(), largest, seen.texts))
    check(f'{name}: adapters change the model', (before - wanted).abs().max() > 1e-3 * largest)


def trained(name, *options):
    """A model that was trained here, and its export."""
    run('train', '--num-layers', 2, '--hidden-size', 32, '--num-attention-heads', 4, '--seq-length', 64, '--data-path',
        'corpus.h5', '--global-batch-size', 8, '--train-iters', 60, '--lr', 0.01, '--eval-iters', 0, '--backend', 'cpu',
        '--save', f'{name}-run', *options)
    run('checkpoint', 'export', '--load', f'{name}-run', '--output', f'{name}-model')
    model, tokenizer = load(f'{name}-model')
    compare(name, f'{name}-run', model, tokenizer)
    for dtype, theirs in [('bf16', torch.bfloat16), ('fp16', torch.float16)]:
        run('checkpoint', 'export', '--load', f'{name}-run', '--output', f'{name}-{dtype}', '--dtype', dtype)
        masters = tensors_of(f'{name}-model')
        check(f'{name}: {dtype} is the rounded master', all(
            torch.equal(tensor, masters[key].to(theirs)) for key, tensor in tensors_of(f'{name}-{dtype}').items()))


def bert():
    words = sorted({word.lower() for sentence in SENTENCES for word in sentence.replace(',', ' ,').split()})
    letters = [chr(code) for code in range(33, 127)]
    vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *dict.fromkeys(letters + words),
                  *('##' + letter for letter in letters)]
    pathlib.Path('vocab.txt').write_text('\n'.join(vocabulary) + '\n', encoding='utf-8')
    shape = dict(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=48, max_position_embeddings=64)
    for class_name, more in [('BertForPreTraining', {}), ('BertForSequenceClassification', dict(num_labels=3)),
                             ('BertForMultipleChoice', {}), ('BertForQuestionAnswering', {}), ('BertForMaskedLM', {}),
                             ('BertModel', {})]:
        torch.manual_seed(2)
        model_class = getattr(transformers, class_name)
        model = model_class(model_class.config_class(**shape, **more)).eval()
        tokenizer = transformers.BertTokenizer('vocab.txt') if int(transformers.__version__[0]) < 5 else \
            transformers.BertTokenizer(vocab={token: i for i, token in enumerate(vocabulary)})
        model.save_pretrained(f'{class_name}-original')
        tokenizer.save_pretrained(f'{class_name}-original')
        run('checkpoint', 'import', '--input', f'{class_name}-original', '--output', f'{class_name}-ours')
        run('checkpoint', 'export', '--load', f'{class_name}-ours', '--output', f'{class_name}-export')
        check(f'{class_name}: export of import is bit-equal', same_tensors(f'{class_name}-original', f'{class_name}-export'))
        again, its_tokenizer = load(f'{class_name}-export', model_class)
        inputs = tokenizer(SENTENCES[0], SENTENCES[1], return_tensors='pt')
        check(f'{class_name}: the exported tokenizer is the same',
              its_tokenizer(SENTENCES[0], SENTENCES[1])['input_ids'] == inputs['input_ids'][0].tolist())
        if class_name == 'BertForMultipleChoice':
            inputs = {key: value[None] for key, value in inputs.items()}
        with torch.no_grad():
            check(f'{class_name}: the exported model is the same',
                  torch.equal(again(**inputs)[0], model(**inputs)[0]))


def main():
    for class_name, (kind, settings) in CLASSES.items():
        round_trip(class_name.removesuffix('ForCausalLM').removesuffix('LMHeadModel').lower(), class_name, kind, settings)
    bert()
    with open('corpus.jsonl', 'w', encoding='utf-8') as file:
        file.writelines(json.dumps({'text': text}) + '\n' for text in SENTENCES * 60)
    run('corpus', 'build', '--input', 'corpus.jsonl', '--output', 'corpus.h5', '--tokenizer', 'bytes', '--append-eod')
    trained('our-gpt2')
    llama = ['--normalization', 'RMSNorm', '--swiglu', '--position-embedding-type', 'rope', '--disable-bias-linear',
             '--untie-embeddings-and-output-weights', '--group-query-attention', '--num-query-groups', 2]
    trained('our-llama', *llama)
    trained('our-gpt-neox', '--parallel-residual', '--position-embedding-type', 'rope', '--rotary-percent', 0.5)
    trained('our-falcon', '--parallel-residual', '--shared-norm', '--position-embedding-type', 'rope', '--gelu', 'erf',
            '--disable-bias-linear', '--group-query-attention')
    trained('our-bloom', '--position-embedding-type', 'alibi', '--embed-layernorm')
    trained('our-llama-1p', *llama, '--apply-layernorm-1p')
    trained('our-qwen2', *llama, '--add-qkv-bias')
    trained('our-qwen3', *llama, '--qk-layernorm', '--kv-channels', 16)
    across = ['--qk-layernorm', '--qk-layernorm-across-heads']
    trained('our-olmo2', *llama, *across, '--post-branch-norm')
    trained('our-olmoe', *llama, *across, '--num-experts', 4, '--moe-router-pre-softmax')
    trained('our-mixtral', *llama, '--num-experts', 4, '--moe-ffn-hidden-size', 48)
    trained('our-qwen3-moe', *llama, '--qk-layernorm', '--num-experts', 4, '--moe-router-pre-softmax',
            '--moe-layer-freq', '[0,1]')
    print(f'{checks} checks, {failures} failed (transformers {transformers.__version__}, torch {torch.__version__})')
    return failures > 0


if __name__ == '__main__':
    sys.exit(main())
