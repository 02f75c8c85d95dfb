"""Times training steps of GPT-2 in PyTorch, for comparison with `trireme train` on the same machine.

Prints the tokens per second of each step but the first ones (--warm-up), one a line. The model is Trireme's: GELU in its
tanh form, tied embeddings, dropout at the same places; each step clears the gradients, runs forward and backward over
--micro-batches micro-batches, clips the gradient norm and takes an AdamW update. bf16 is autocast over fp32 weights.
Attention is the fastest of PyTorch's at these shapes, where the version has any; on a GPU the optimizer is the fused
one, too. Versions, and which attention it is, go to stderr.
"""

import argparse
import array
import contextlib
import ctypes
import re
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

FUSED_ATTENTION = getattr(F, "scaled_dot_product_attention", None)


class Block(nn.Module):
    def __init__(self, hidden, heads, sequence, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.fc_proj = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        if FUSED_ATTENTION is None:
            self.register_buffer("future", torch.ones(sequence, sequence, dtype=torch.bool).triu(1))

    def attend(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        if FUSED_ATTENTION is not None:
            mixed = FUSED_ATTENTION(q, k, v, is_causal=True, dropout_p=self.dropout)
        else:
            scores = q @ k.transpose(-1, -2) * (h // self.heads) ** -0.5
            probabilities = F.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1)
            mixed = F.dropout(probabilities, self.dropout) @ v
        return self.proj(mixed.transpose(1, 2).reshape(b, s, h))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.ln_1(x)), self.dropout)
        return x + F.dropout(self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")), self.dropout)


class Gpt2(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.dropout = args.dropout
        self.wte = nn.Embedding(args.vocabulary, args.hidden)
        self.wpe = nn.Embedding(args.positions, args.hidden)
        self.blocks = nn.Sequential(
            *(Block(args.hidden, args.heads, args.sequence, args.dropout) for _ in range(args.layers))
        )
        self.ln_f = nn.LayerNorm(args.hidden)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        logits = F.linear(self.ln_f(self.blocks(F.dropout(x, self.dropout))), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def fastest_attention(args):
    """Name and context of the attention whose forward and backward together take the least time."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return "fused, chosen by PyTorch" if FUSED_ATTENTION else "composed", contextlib.nullcontext()
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    shape = (args.batch, args.heads, args.sequence, args.hidden // args.heads)
    q, k, v = (torch.randn(shape, device=args.device, dtype=dtype, requires_grad=True) for _ in range(3))
    gradient = torch.randn(shape, device=args.device, dtype=dtype)
    calls = 10 if args.device == "cuda" else 3
    times = {}
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue
        try:
            with sdpa_kernel(backend):
                for _ in range(2):  # the first time does not count
                    begin = time.perf_counter()
                    for _ in range(calls):
                        FUSED_ATTENTION(q, k, v, is_causal=True, dropout_p=args.dropout).backward(gradient)
                    if args.device == "cuda":
                        torch.cuda.synchronize()
                    times[backend] = time.perf_counter() - begin
        except RuntimeError:
            times.pop(backend, None)  # not for these shapes, or not in this build
    fastest = min(times, key=times.get)
    name = fastest.name.lower().removesuffix("_attention")
    return f"{name} ({1e3 * times[fastest] / calls:.3f} ms both ways)", sdpa_kernel(fastest)


def versions(device):
    text = f"PyTorch {torch.__version__}"
    if device == "cpu":
        return text
    text += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    with open("/proc/self/maps") as maps:  # the library that it has loaded
        path = re.search(r"/\S*libcublasLt\.so\S*", maps.read())
    if path:
        get_version = ctypes.CDLL(path.group()).cublasLtGetVersion
        get_version.restype = ctypes.c_size_t
        text += f", cuBLASLt {get_version()}"
    return text


def read_samples(path, length):
    """Sample j is tokens j * length to (j + 1) * length of a file of llm.c's, the last one being the next one's first."""
    with open(path, "rb") as file:
        tokens = array.array("H", file.read()[1024:])
    return torch.tensor(tokens, dtype=torch.int64).unfold(0, length + 1, length)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("layers", "hidden", "heads", "sequence", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--tokens", required=True, metavar="FILE", help="in llm.c's format, enough for all steps")
    parser.add_argument("--micro-batches", type=int, default=1, help="of --batch samples each, in a step")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    on_gpu = args.device == "cuda"
    with torch.device(args.device) if on_gpu else contextlib.nullcontext():
        model = Gpt2(args)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **({"fused": True} if on_gpu else {}))
    step_of = torch.compile(model) if args.compile else model
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    attention, attention_context = fastest_attention(args)
    print(f"{versions(args.device)}, attention: {attention}", file=sys.stderr, flush=True)
    samples = read_samples(args.tokens, args.sequence)
    in_step = args.micro_batches * args.batch
    with attention_context:
        for step in range(args.steps):
            shape = (args.micro_batches, args.batch, args.sequence + 1)
            tokens = samples[step * in_step : (step + 1) * in_step].reshape(shape).to(args.device)
            synchronize()
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            for micro_batch in tokens:
                with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
                    loss = step_of(micro_batch[:, :-1], micro_batch[:, 1:]) / args.micro_batches
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            synchronize()
            elapsed = time.perf_counter() - begin
            if step >= args.warm_up:
                print(in_step * args.sequence / elapsed, flush=True)


main()
