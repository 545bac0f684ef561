"""Train a small GPT on the source code of Python's own modules, and print JSON lines of metrics."""

import argparse
import inspect
import json
import math
import typing

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--attention", choices=["plain", "gated"], required=True)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
DIM, HEADS, LENGTH, BATCH = 64, 4, 64, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(DIM), nn.LayerNorm(DIM)])
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.gate = None

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = self.qkv(y).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed * self.gate(y).sigmoid() if self.gate else mixed)
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(DIM, 256)
        for block in self.blocks if args.attention == "gated" else ():
            block.gate = nn.Linear(DIM, DIM)  # last, so that all other weights start alike in both variants

    def forward(self, rows):
        x = self.tokens(rows) + self.positions.weight[: rows.shape[1]]
        return self.head(self.blocks(x))


def loss(rows):
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


data = torch.tensor(list("".join(map(inspect.getsource, (argparse, inspect, typing))).encode()))
train, test = data[:-20_000], data[-20_000:].unfold(0, LENGTH + 1, LENGTH)
torch.manual_seed(args.seed)
model, sampler = GPT(), torch.Generator().manual_seed(args.seed)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for step in range(1, args.steps + 1):
    starts = torch.randint(len(train) - LENGTH, (BATCH, 1), generator=sampler)
    value = loss(train[starts + torch.arange(LENGTH + 1)])
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    if step % 20 == 0:
        print(json.dumps({"step": step, "train_loss": value.item()}))
with torch.no_grad():
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"bits_per_byte": loss(test).item() / math.log(2), "parameters": parameters}))
