"""A GPT in plain PyTorch, of the shape that nanoGPT has: what one writes without a library. A peer for train.py.

Fused qkv cut by thirds, SDPA with its causal flag, exact GELU, norms without bias where asked, a tied head over a
vocabulary padded to a multiple of 64, cross-entropy of all logits at once. Our own words, its shapes and flags.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(nn.Module):
    """Layer norm whose bias may be left out."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in."""

    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = Norm(width, bias), Norm(width, bias)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm_1(x)).split(c, dim=2))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).contiguous().view(b, n, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    """Tokens and targets in, the mean loss out."""

    def __init__(self, vocab: int, width: int, heads: int, layers: int, length: int, bias: bool) -> None:
        super().__init__()
        vocab = -(-vocab // 64) * 64
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias) for _ in range(layers))
        self.norm = Norm(width, bias)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                adds = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if adds else 0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)
