"""Imports checkpoints that Megatron-LM's own code writes; tests/interchange.sh installs megatron-core and calls it.

usage: megatron_interchange.py TRIREME [MODEL...] compares models, by default all; works in the present folder
       megatron_interchange.py --fixtures OUTPUT [NAME...] writes the small models of tests/fixtures/megatron

Random models of megatron-core run on the CPU, on as many processes as the layout has ranks. Their own forward gives the
logits that the imported models must have. The folder TRIREME_MEGATRON_LM, a clone of Megatron-LM, adds its own options and
its own save_checkpoint.
"""
import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
import typing
import warnings

import numpy
import torch
import torch.distributed
import torch.multiprocessing
import torch.nn.functional as F

LAYOUTS = {  # tensor, pipeline and data ranks, virtual stages of a pipeline rank
    'one': (1, 1, 1, 1), 'tp2': (2, 1, 1, 1), 'tp2-pp2': (2, 2, 1, 1), 'pp2-virtual': (1, 2, 1, 2), 'tp2-dp2': (2, 1, 2, 1)}
SHAPE = '--num-layers 4 --hidden-size 48 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 45'
SMALL = '--num-layers 2 --hidden-size 8 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 --vocab-size 19'
LLAMA = ('--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear '
         '--untie-embeddings-and-output-weights --group-query-attention')
MODELS = {
    'gpt2': '', 'gpt2-erf': '--no-bias-gelu-fusion --untie-embeddings-and-output-weights',
    'squared-relu': '--squared-relu --disable-bias-linear --add-qkv-bias --no-bias-gelu-fusion',
    'llama': LLAMA + ' --num-query-groups 2 --ffn-hidden-size 64',
    'llama-tied-1': '--position-embedding-type rope --normalization RMSNorm --swiglu --rotary-percent 0.5 --kv-channels 16 '
                    '--rotary-base 500000 --norm-epsilon 1e-6',
    'llama3.1': LLAMA + ' --num-query-groups 2 --use-rope-scaling --rotary-base 500000',
    'qwen3': LLAMA + ' --num-query-groups 2 --qk-layernorm --kv-channels 16',
    'interleaved': LLAMA + ' --num-query-groups 4 --rotary-interleaved',
    'qwen3-1p': LLAMA + ' --num-query-groups 2 --qk-layernorm --apply-layernorm-1p',
    'yarn': LLAMA + ' --num-query-groups 2 --position-embedding-type yarn --rotary-scaling-factor 8 --mscale 0.8 '
                    '--yarn-original-max-position-embeddings 16 --kv-channels 32',
    'window': LLAMA + ' --num-query-groups 2 --window-size 5,0',
    'window-skip': LLAMA + ' --num-query-groups 2 --window-size 5,0 --window-attn-skip-freq 2',
    'window-list': LLAMA + ' --num-query-groups 2 --window-size 3,0 --window-attn-skip-freq [1,0,0,1]',
}
BERTS = {'bert': '--no-bias-gelu-fusion', 'bert-fused': '', 'bert-plain': '--bert-no-binary-head --no-bias-gelu-fusion'}
RUNS = [('gpt2', 'one'), ('gpt2', 'tp2-pp2'), ('gpt2', 'pp2-virtual'), ('gpt2', 'tp2-dp2'), ('gpt2-erf', 'tp2'),
        ('squared-relu', 'tp2'), ('llama', 'one'), ('llama', 'tp2-pp2'), ('llama', 'pp2-virtual'), ('llama-tied-1', 'tp2-dp2'),
        ('llama3.1', 'tp2'), ('qwen3', 'tp2-pp2'), ('interleaved', 'tp2'), ('qwen3-1p', 'one'), ('yarn', 'one'),
        ('window', 'one'), ('window-skip', 'tp2-pp2'),
        ('window-list', 'one')]
# Made by megatron-core 0.16.1; run_common by a clone of version 0.20, which has no common.pt any more.
FIXTURES = [('run_gpt2', 'gpt2', 'tp2-pp2', 'torch'), ('run_window', 'window-skip', 'tp2-pp2', 'torch_dist'),
            ('run_yarn', 'yarn', 'one', 'torch'), ('run_bert', 'bert', 'tp2-pp2', 'torch'),
            ('run_bert_fused', 'bert-fused', 'tp2', 'torch_dist'), ('run_bert_plain', 'bert-plain', 'one', 'torch_dist'),
            ('run_common', 'qwen3-1p', 'one', 'torch_dist')]
SAMPLES = 3
checks = failures = 0


def check(what, holds, detail=''):
    global checks, failures
    checks += 1
    failures += not holds
    print(f"{'passed' if holds else 'FAILED'}: {what}{'' if holds else ': ' + str(detail)}", flush=True)


# Options of a run.

def layers_of(text):
    return json.loads(text) if '[' in text else int(text)


def parse(words):
    """The options that shape a model, by the names and with the defaults of Megatron-LM 0.16."""
    parser = argparse.ArgumentParser()
    for name, kind, default in [
            ('num-layers', int, None), ('hidden-size', int, None), ('num-attention-heads', int, None), ('seq-length', int, None),
            ('max-position-embeddings', int, None), ('ffn-hidden-size', int, None), ('kv-channels', int, None),
            ('num-query-groups', int, 1), ('position-embedding-type', str, 'learned_absolute'), ('rotary-base', int, 10000),
            ('rotary-percent', float, 1.0), ('rotary-seq-len-interpolation-factor', int, None),
            ('rope-scaling-factor', float, 8.0), ('normalization', str, 'LayerNorm'), ('norm-epsilon', float, 1e-5),
            ('window-size', lambda text: tuple(map(int, text.split(','))), None), ('window-attn-skip-freq', layers_of, None),
            ('rotary-scaling-factor', float, 1.0), ('mscale', float, 1.0), ('mscale-all-dim', float, 0.0),
            ('yarn-original-max-position-embeddings', int, None), ('hidden-dropout', float, 0.1), ('attention-dropout', float, 0.1), ('make-vocab-size-divisible-by', int, 128),
            ('tensor-model-parallel-size', int, 1), ('pipeline-model-parallel-size', int, 1), ('vocab-size', int, None)]:
        parser.add_argument('--' + name, type=kind, default=default)
    for name in ['swiglu', 'squared-relu', 'openai-gelu', 'quick-geglu', 'use-rope-scaling', 'rotary-interleaved', 'qk-layernorm',
                 'group-query-attention', 'untie-embeddings-and-output-weights', 'add-qkv-bias', 'apply-layernorm-1p',
                 'use-rotary-position-embeddings', 'multi-latent-attention', 'apply-residual-connection-post-layernorm']:
        parser.add_argument('--' + name, action='store_true')
    for name, member in [('disable-bias-linear', 'add_bias_linear'), ('no-bias-gelu-fusion', 'bias_gelu_fusion'),
                         ('bert-no-binary-head', 'bert_binary_head')]:
        parser.add_argument('--' + name, action='store_false', dest=member)
    return parser.parse_args(words)


def options_of(model, layout, shape):
    """The `args` of a checkpoint, from Megatron-LM's own parser where a clone of it is there."""
    tensor, pipeline, _, virtual = LAYOUTS[layout]
    words = f'{shape} {(MODELS | BERTS)[model]} --make-vocab-size-divisible-by 4 ' \
            f'--tensor-model-parallel-size {tensor} --pipeline-model-parallel-size {pipeline}'.split()
    args = parse(words)
    if has_training():
        from megatron.training.arguments import parse_args
        rest, sys.argv[1:] = sys.argv[1:], [*words, '--transformer-impl', 'local', '--micro-batch-size', '1']
        ours, args = args, parse_args()
        sys.argv[1:] = rest
        missing = {name: value for name, value in vars(ours).items() if getattr(args, name, value) != value}
        args.rank = 0
        if missing:
            raise SystemExit(f'Megatron-LM parses these options otherwise: {missing}')
    # What Megatron-LM's validate_args sets.
    args.ffn_hidden_size = args.ffn_hidden_size or (
        int(4 * args.hidden_size * 2 / 3 / 64) * 64 or 64 if args.swiglu else 4 * args.hidden_size)
    args.kv_channels = args.kv_channels or args.hidden_size // args.num_attention_heads
    multiple = args.make_vocab_size_divisible_by * tensor
    args.padded_vocab_size = math.ceil(args.vocab_size / multiple) * multiple
    args.virtual_pipeline_model_parallel_size = virtual if virtual > 1 else None
    args.bias_gelu_fusion = args.bias_gelu_fusion and args.add_bias_linear and not args.swiglu
    args.params_dtype = torch.float64
    args.use_legacy_models = False
    return args


def has_training():
    return 'TRIREME_MEGATRON_LM' in os.environ


# megatron.core without a GPU.

class OnHost(torch.overrides.TorchFunctionMode):
    """Makes tensors on the CPU where megatron.core names a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get('device') is not None and torch.device(kwargs['device']).type == 'cuda':
            kwargs['device'] = 'cpu'
        return function(*args, **kwargs)


def without_gpu():
    from megatron.core.tensor_parallel import random as parallel_random
    torch.cuda.current_device = lambda: 'cpu'
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_: self
    parallel_random.CudaRNGStatesTracker.fork = lambda self, *_: contextlib.nullcontext()
    OnHost().__enter__()
    from megatron.core.transformer import torch_norm
    make = torch_norm.WrappedTorchNorm.__new__

    def make_centred(cls, config, *rest, **more):
        """Norms whose weights are stored as the difference from 1, which torch lacks."""
        module = make(cls, dataclasses.replace(config, layernorm_zero_centered_gamma=False), *rest, **more)
        shape, eps = module.normalized_shape, module.eps
        if config.layernorm_zero_centered_gamma and config.normalization == 'RMSNorm':
            module.forward = lambda x: F.rms_norm(x, shape, module.weight + 1, eps)
        elif config.layernorm_zero_centered_gamma:
            module.forward = lambda x: F.layer_norm(x, shape, module.weight + 1, module.bias, eps)
        return module
    torch_norm.WrappedTorchNorm.__new__ = make_centred


def is_1p(args):
    return getattr(args, 'layernorm_zero_centered_gamma', None) or getattr(args, 'apply_layernorm_1p', False)


def config_of(args):
    """As Megatron-LM's core_transformer_config_from_args."""
    from megatron.core.activations import squared_relu
    from megatron.core.transformer import TransformerConfig
    known = {field.name for field in dataclasses.fields(TransformerConfig)}
    values = {name: value for name, value in vars(args).items() if name in known}
    values.update(
        layernorm_zero_centered_gamma=is_1p(args),
        layernorm_epsilon=getattr(args, 'norm_epsilon', None) or args.layernorm_epsilon,
        num_query_groups=args.num_query_groups if args.group_query_attention else None, pipeline_dtype=torch.float64,
        persist_layer_norm=False, use_cpu_initialization=True, gated_linear_unit=args.swiglu,
        activation_func=F.silu if args.swiglu else squared_relu if args.squared_relu else F.gelu,
        bias_activation_fusion=args.bias_gelu_fusion, masked_softmax_fusion=False, gradient_accumulation_fusion=False,
        apply_rope_fusion=False, bias_dropout_fusion=False, batch_p2p_comm=False, deallocate_pipeline_outputs=False)
    config = TransformerConfig(**values)
    for name, value in [  # as Megatron-LM does from 0.19 on
            ('rotary_scaling_factor', args.rotary_scaling_factor), ('mscale', args.mscale),
            ('mscale_all_dim', args.mscale_all_dim), ('beta_fast', 32.0), ('beta_slow', 1.0),
            ('original_max_position_embeddings', getattr(args, 'yarn_original_max_position_embeddings', None) or 4096),
            ('correction_range_round_to_int', True)]:
        if args.position_embedding_type == 'yarn':
            setattr(config, 'yarn_' + name, value)
    return config


def sharpen(rotary, args):
    """Computes the frequencies of rotary positions in fp64."""
    size = rotary.inv_freq.numel()
    exponents = torch.arange(0, 2 * size, 2, dtype=torch.float64) / (2 * size)
    exact = 1 / float(args.rotary_base) ** exponents
    if args.position_embedding_type == 'yarn':
        rotary.inv_freq_extra, rotary.inv_freq_inter = exact, exact / args.rotary_scaling_factor
    if args.use_rope_scaling:
        exact = rotary._apply_scaling(exact, factor=args.rope_scaling_factor)
    assert torch.allclose(exact, rotary.inv_freq.double(), rtol=1e-5), 'the frequencies are computed otherwise'
    rotary.inv_freq = exact
    rotary.forward.cache_clear()


def make_chunks(args, is_bert):
    """The stages of this rank, with random parameters that are the same on any layout."""
    from megatron.core import parallel_state
    from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
    from megatron.core.models.bert.bert_model import BertModel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    virtual = args.virtual_pipeline_model_parallel_size or 1
    pipeline_rank, pipeline = parallel_state.get_pipeline_model_parallel_rank(), args.pipeline_model_parallel_size
    chunks = []
    for chunk in range(virtual):
        if virtual > 1:
            parallel_state.set_virtual_pipeline_model_parallel_rank(chunk)
        stage = dict(pre_process=pipeline_rank == 0 and chunk == 0, parallel_output=False,
                     post_process=pipeline_rank == pipeline - 1 and chunk == virtual - 1,
                     share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                     vp_stage=chunk if virtual > 1 else None)
        size = (args.padded_vocab_size, args.max_position_embeddings)
        if is_bert:
            model = BertModel(config_of(args), 2 if args.bert_binary_head else 0, bert_layer_local_spec, *size,
                              add_binary_head=args.bert_binary_head, **stage)
        else:
            spec = get_gpt_layer_local_spec(qk_layernorm=args.qk_layernorm, normalization=args.normalization)
            model = GPTModel(config_of(args), spec, *size, position_embedding_type=args.position_embedding_type,
                             rotary_percent=args.rotary_percent, rotary_base=args.rotary_base,
                             rope_scaling=args.use_rope_scaling, **stage)
        model.double().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                randomise(model, args, name, parameter)
        if hasattr(model, 'rotary_pos_emb'):
            sharpen(model.rotary_pos_emb, args)
        chunks.append(model)
    return chunks


def randomise(model, args, name, parameter):
    from megatron.core import parallel_state
    words = name.split('.')
    if 'layers' in words:
        place = words.index('layers') + 1
        block = model.get_submodule('.'.join(words[:place]))
        words[place] = str(block[int(words[place])].layer_number)
    key = '.'.join(words)
    if key == 'output_layer.weight' and not args.untie_embeddings_and_output_weights:
        key = 'embedding.word_embeddings.weight'  # the copy of the last stage
    if getattr(parameter, 'tensor_model_parallel', False):
        key += f'.{parallel_state.get_tensor_model_parallel_rank()}'
    seed = int.from_bytes(key.encode(), 'little') % (2**63 - 25)
    noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    around = 1.0 if 'norm' in key and key.endswith('weight') and not is_1p(args) else 0.0
    parameter.copy_((around + 0.3 * noise).to(torch.float32))  # fp32 numbers: also those of a file in fp32


def run_model(args, chunks, tokens, types, lengths):
    """The result of the last stage: logits [samples, s, vocabulary], of a BERT with those of the binary head."""
    from megatron.core import parallel_state
    stage, last = parallel_state.get_pipeline_model_parallel_rank(), args.pipeline_model_parallel_size - 1
    group = parallel_state.get_pipeline_model_parallel_group()
    ranks = torch.distributed.get_process_group_ranks(group)
    b, s = tokens.shape
    positions = torch.arange(s).expand(b, s)
    mask = torch.ones(s, s, dtype=torch.bool).triu(1)[None, None]
    if args.window_size is not None:
        mask = None  # made by each layer
    result = None
    with torch.no_grad():
        for number, chunk in enumerate(chunks):
            if parallel_state.get_virtual_pipeline_model_parallel_world_size():
                parallel_state.set_virtual_pipeline_model_parallel_rank(number)
            if not chunk.pre_process:
                hidden = torch.empty(s, b, args.hidden_size, dtype=torch.float64)
                torch.distributed.recv(hidden, ranks[stage - 1 if stage > 0 else last])
                chunk.set_input_tensor(hidden)
            if hasattr(chunk, 'encoder'):
                attended = torch.arange(s)[None] < lengths[:, None]
                result = chunk(tokens, attended.long(), types if args.bert_binary_head else None)
            else:
                result = chunk(tokens, positions, mask)
            if not chunk.post_process:
                torch.distributed.send(result.contiguous(), ranks[stage + 1 if stage < last else 0])
    return result


# Checkpoints.

def save_torch(args, chunks, folder):
    """As Megatron-LM's save_checkpoint with --ckpt-format torch."""
    from megatron.core import parallel_state
    if parallel_state.get_data_parallel_rank() > 0:
        return
    name = f'mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}'
    if args.pipeline_model_parallel_size > 1:
        name += f'_{parallel_state.get_pipeline_model_parallel_rank():03d}'
    state = {'args': args, 'checkpoint_version': 3.0, 'iteration': 5}
    for number, chunk in enumerate(chunks):
        state['model' if len(chunks) == 1 else f'model{number}'] = chunk.state_dict_for_save_checkpoint()
    path = pathlib.Path(folder, 'iter_0000005', name)
    path.mkdir(parents=True, exist_ok=True)
    torch.save(state, path / 'model_optim_rng.pt')


def save_distributed(args, chunks, folder):
    """As Megatron-LM's save_checkpoint with --ckpt-format torch_dist."""
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    metadata = dict(singleton_local_shards=False, chained_optim_avoid_prefix=True, dp_cp_group=group)
    state = {'args': args, 'checkpoint_version': 3.0, 'iteration': 5}
    for number, chunk in enumerate(chunks):
        state['model' if len(chunks) == 1 else f'model{number}'] = chunk.sharded_state_dict(metadata=metadata)
    strategy = FullyParallelSaveStrategyWrapper(get_default_save_sharded_strategy('torch_dist'), group)
    path = pathlib.Path(os.path.relpath(folder), 'iter_0000005')  # .metadata holds it
    if torch.distributed.get_rank() == 0:
        path.mkdir(parents=True, exist_ok=True)
    torch.distributed.barrier()
    dist_checkpointing.save(state, str(path), strategy)


def save_by_training(args, chunks, folder, ckpt_format):
    """Megatron-LM's own save_checkpoint, of a clone."""
    from megatron.training import checkpointing, global_vars
    args.save, args.ckpt_format, args.use_dist_ckpt = os.path.relpath(folder), ckpt_format, ckpt_format != 'torch'
    args.save_tokenizer_assets = False
    global_vars._GLOBAL_ARGS = args
    checkpointing.save_checkpoint(5, chunks, None, None, 0)


def rank_main(rank, model, layout, shape, folder, dtype):
    """One rank: makes its part of a model, saves it in every way, and on the last stage the logits."""
    try:
        warnings.simplefilter('ignore')
        import_megatron()
        torch.set_num_threads(1)
        from megatron.core import parallel_state
        without_gpu()
        tensor, pipeline, data, virtual = LAYOUTS[layout]
        world = tensor * pipeline * data
        torch.distributed.init_process_group('gloo', init_method=f'file://{folder}/store', rank=rank, world_size=world)
        parallel_state.initialize_model_parallel(tensor, pipeline, virtual if virtual > 1 else None)
        args = options_of(model, layout, shape)
        args.world_size, args.data_parallel_size = world, data
        chunks = make_chunks(args, model in BERTS)
        tokens = torch.randint(args.vocab_size, (SAMPLES, args.seq_length), generator=torch.Generator().manual_seed(3))
        types = (torch.arange(args.seq_length)[None] >= torch.tensor([[3], [2], [4]])).long()
        lengths = args.seq_length - torch.arange(SAMPLES)
        result = run_model(args, chunks, tokens, types, lengths)
        if parallel_state.is_pipeline_last_stage(ignore_virtual=True) and parallel_state.get_tensor_model_parallel_rank() == 0 \
                and parallel_state.get_data_parallel_rank() == 0:
            expected = dict(tokens=tokens)
            if model in BERTS:
                result, order = result
                expected.update(types=types, lengths=lengths, **({'order_logits': order} if order is not None else {}))
            expected['logits'] = result[..., :args.vocab_size].contiguous()
            numpy.savez(f'{folder}/expected.npz', **{name: tensor.numpy() for name, tensor in expected.items()})
        for chunk in chunks:
            chunk.to(dtype)
        args.params_dtype = dtype
        ways = {'torch': save_torch, 'torch_dist': save_distributed}
        if has_training():
            ways['trained-torch'] = lambda *rest: save_by_training(*rest, 'torch')
            ways['trained-torch_dist'] = lambda *rest: save_by_training(*rest, 'torch_dist')
        for way, save in ways.items():
            save(args, chunks, f'{folder}/{way}')
            torch.distributed.barrier()
            if rank == 0:
                pathlib.Path(folder, way, 'latest_checkpointed_iteration.txt').write_text('5')
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        raise


def import_megatron():
    if has_training():
        import typing_extensions
        typing.override = typing_extensions.override  # Python 3.11 lacks it
        sys.path.insert(0, os.environ['TRIREME_MEGATRON_LM'])
    import megatron.core
    return megatron.core.__version__


def save_model(model, layout, shape, folder, dtype=torch.float64):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tensor, pipeline, data, _ = LAYOUTS[layout]
    torch.multiprocessing.spawn(rank_main, (model, layout, shape, os.path.abspath(folder), dtype), tensor * pipeline * data)
    os.unlink(f'{folder}/store')


# Comparison.

def run(trireme, *arguments):
    done = subprocess.run([trireme, *map(str, arguments)], capture_output=True, encoding='utf-8', errors='replace')
    return done.returncode, done.stdout, done.stderr


def write_tokens(prefix, tokens):
    """The two files of Megatron-LM's data: one document."""
    tokens = numpy.asarray(tokens, dtype=numpy.int32)
    tokens.tofile(prefix + '.bin')
    with open(prefix + '.idx', 'wb') as file:
        file.write(b'MMIDIDX\x00\x00' + numpy.array([1], 'uint64').tobytes() + b'\x04')
        file.write(numpy.array([1, 2], 'uint64').tobytes() + numpy.array([tokens.size], 'int32').tobytes())
        file.write(numpy.array([0], 'int64').tobytes() + numpy.array([0, 1], 'int64').tobytes())


def compare(trireme, name, checkpoint, expected, dtype, tolerance):
    """Imports a checkpoint, and compares the logits."""
    import h5py
    shutil.rmtree('imported', ignore_errors=True)
    tokens, vocabulary = expected['tokens'], expected['logits'].shape[-1]
    code, _, errors = run(trireme, 'checkpoint', 'import', '--format', 'megatron', '--input', checkpoint, '--output',
                          'imported', '--dtype', dtype, '--no-tokenizer', '--vocab-size', vocabulary)
    if code != 0:
        return check(f'{name}: is imported', False, errors)
    write_tokens('tokens', [*tokens.flatten(), 0])  # windows overlap in one token
    for step in [('corpus', 'import', 'tokens', '--output', 'tokens.h5', '--tokenizer', 'null', '--vocab-size', vocabulary),
                 ('eval', '--load', 'imported', '--task', 'perplexity', '--data-path', 'tokens.h5', '--logits-file', 'logits.h5',
                  '--logits-samples', *range(len(tokens)), '--backend', 'cpu', '--seq-length', tokens.shape[1])]:
        pathlib.Path(step[step.index('--output') + 1] if '--output' in step else 'logits.h5').unlink(missing_ok=True)
        code, _, errors = run(trireme, *step)
        if code != 0:
            return check(f'{name}: is evaluated', False, errors)
    with h5py.File('logits.h5') as file:
        ours = numpy.stack([file[f'sample-{i}/logits'][()] for i in range(len(tokens))])
        same = all(numpy.array_equal(file[f'sample-{i}/tokens'][()], row) for i, row in enumerate(tokens))
    if not same:
        return check(f'{name}: the windows are the samples', False)
    worst = numpy.abs(ours - expected['logits']).max() / numpy.abs(expected['logits']).max()
    check(f'{name}: logits in {dtype} (difference {worst:.1e})', worst <= tolerance, worst)


def write_fixtures(output):
    from safetensors.numpy import save_file
    for name, model, layout, way in FIXTURES:
        if has_training() != (name == 'run_common') or (sys.argv[3:] and name not in sys.argv[3:]):
            continue
        save_model(model, layout, SMALL, 'saved', torch.float32)
        shutil.rmtree(f'{output}/{name}', ignore_errors=True)
        shutil.copytree(f'saved/{way}/iter_0000005', f'{output}/{name}')
        save_file(dict(numpy.load('saved/expected.npz')), f'{output}/{name}/expected.safetensors')


def main():
    version = import_megatron()
    if sys.argv[1] == '--fixtures':
        return write_fixtures(sys.argv[2])
    trireme = sys.argv[1]
    if has_training() and version < '0.19':
        print(f'skipped: yarn: Megatron-LM {version} has no options of it')
        RUNS.remove(('yarn', 'one'))
    for model, layout in [pair for pair in RUNS if not sys.argv[2:] or pair[0] in sys.argv[2:]]:
        save_model(model, layout, SHAPE, 'saved')
        expected = numpy.load('saved/expected.npz')
        # Megatron-LM writes the factor sqrt(2 / pi) of its fused GELU with eight digits.
        exact = 1e-9 if '--' not in MODELS[model] else 1e-10
        for way in sorted(path.name for path in pathlib.Path('saved').iterdir() if path.is_dir()):
            for dtype, tolerance in [('fp64', exact), ('fp32', 1e-5)]:
                compare(trireme, f'{model} {layout} {way}', f'saved/{way}', expected, dtype, tolerance)
    print(f'{checks} checks, {failures} failed (megatron-core {version}, torch {torch.__version__})')
    return failures > 0


if __name__ == '__main__':
    sys.exit(main())
