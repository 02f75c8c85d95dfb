"""Times training steps of GPT-2 in PyTorch, for comparison with `trireme train` on the same machine.

Usage: gpt2_pytorch.py LAYERS HIDDEN HEADS SEQUENCE BATCH fp32|bf16 THREADS STEPS

Prints the tokens per second of each step but the first, one a line. The model is Trireme's: GELU in its tanh form, tied
embeddings, no dropout; each step clears, runs forward and backward, clips the gradient norm and takes an AdamW update.
bf16 is autocast over fp32 weights. Attention is PyTorch's fused one where the version has it.
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, POSITIONS = 50257, 1024
FUSED_ATTENTION = getattr(F, "scaled_dot_product_attention", None)


class Block(nn.Module):
    def __init__(self, hidden, heads, sequence):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.fc_proj = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("future", torch.ones(sequence, sequence, dtype=torch.bool).triu(1))

    def attend(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        if FUSED_ATTENTION is not None:
            mixed = FUSED_ATTENTION(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) * (h // self.heads) ** -0.5
            mixed = F.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(b, s, h))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads, sequence):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, hidden), nn.Embedding(POSITIONS, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads, sequence) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(hidden)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return F.linear(self.ln_f(self.blocks(x)), self.wte.weight)


def main():
    layers, hidden, heads, sequence, batch = map(int, sys.argv[1:6])
    bf16, threads, steps = sys.argv[6] == "bf16", int(sys.argv[7]), int(sys.argv[8])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Gpt2(layers, hidden, heads, sequence)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (batch, sequence + 1))
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        elapsed = time.perf_counter() - begin
        if step > 0:
            print(batch * sequence / elapsed, flush=True)


main()
