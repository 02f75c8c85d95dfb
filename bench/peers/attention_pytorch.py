"""Times PyTorch's attention (SDPA) at the shapes of a file that `kernels_gpu_bench --attention --json FILE` wrote.

Prints a line for each: microseconds of both programs' forward and backward, and PyTorch's time by this program's (above 1:
this program is faster). PyTorch's is the implementation whose forward and backward together take the least time. Times are
medians of seven runs of about 2 ms each, as in kernels_gpu_bench. Shapes with padding, documents or windows are skipped:
SDPA has no such fused kernels. Only shapes of the file are timed, in bf16.
"""

import argparse
import json
import re
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

KIND = re.compile(r"attention, (causal|full)(?:, dropout ([0-9.]+))?")
SHAPE = re.compile(r"(?:.*: )?(\d+) x (\d+) x (\d+) x (\d+)")  # samples, positions, heads, channels
IMPLEMENTATIONS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def seconds(call, device):
    def time_of(calls):
        if device == "cpu":
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - begin) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls

    time_of(1)
    calls = max(1, min(1000, int(2e-3 / time_of(1))))
    return statistics.median(time_of(calls) for _ in range(7))


def peer(kind, shape, device):
    """Name, and seconds of forward and backward, of the fastest implementation."""
    causal, dropout = kind[1] == "causal", float(kind[2] or 0)
    b, s, heads, channels = (int(number) for number in shape.groups())
    qkv = torch.randn((b, s, 3, heads, channels), device=device, dtype=torch.bfloat16)
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in qkv.unbind(2))
    gradient = torch.randn((b, s, heads, channels), device=device, dtype=torch.bfloat16).transpose(1, 2)
    times = {}
    for name in IMPLEMENTATIONS:
        if not hasattr(SDPBackend, name) or (name == "MATH" and times):
            continue
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
                out = forward()
                backward = lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
                times[name] = seconds(forward, device), seconds(backward, device)
        except RuntimeError:
            continue  # not for this shape, or not in this build
    fastest = min(times, key=lambda name: sum(times[name]))
    return fastest.lower().removesuffix("_attention"), *times[fastest]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # why an implementation does not have a shape
    with open(args.file) as file:
        lines = [json.loads(line) for line in file]
    columns = "{:<30} {:<28} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}  {}"
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}; us")
    print(columns.format("kernel", "shape", "forward", "PyTorch's", "ratio", "backward", "PyTorch's", "ratio", ""))
    compared = 0
    for forward, backward in zip(lines, lines[1:]):
        kind, shape = KIND.fullmatch(forward["kernel"]), SHAPE.fullmatch(forward["shape"])
        if not kind or not shape or backward["kernel"] != "its backward":
            continue
        name, *theirs = peer(kind, shape, args.device)
        cells = []
        for ours, their in zip((forward["us"], backward["us"]), theirs):
            cells += [f"{ours:.1f}", f"{1e6 * their:.1f}", f"{1e6 * their / ours:.2f}"]
        print(columns.format(forward["kernel"], forward["shape"], *cells, name), flush=True)
        compared += 1
    if compared == 0:
        sys.exit(f"{args.file} has no attention that PyTorch has, too")


main()
