"""A small language model and an encoder, and variants with one bug each."""

import torch
import torch.nn.functional as F
from torch import nn

from regard.models.transformer import Config, Transformer

VOCAB, WIDTH = 29, 12
TOKENS = torch.randint(1, VOCAB, (4, 9), generator=torch.Generator().manual_seed(5))
LENGTHS = torch.tensor([9, 4, 7, 1])
VECTORS = torch.randn(4, 9, WIDTH, generator=torch.Generator().manual_seed(6))


class Attend(nn.Module):
    """Two-head attention; True in the mask means "may attend"."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(WIDTH), Attend()
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 20), nn.GELU(), nn.Linear(20, WIDTH))

    def forward(self, x, mask):
        x = x + self.attend(self.norm(x), mask)
        return x + self.feed(x)


class Language(nn.Module):
    """Correct: a token attends to itself and earlier ones."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embed.weight

    def mask(self, n, layer):
        return torch.ones(n, n, dtype=torch.bool).tril()

    def between(self, x, layer):
        return x

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer, block in enumerate(self.blocks):
            x = self.between(block(x, self.mask(tokens.shape[1], layer)), layer)
        return self.head(x)


class Encode(nn.Module):
    """Correct: a token attends to all tokens except padding."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def valid(self, tokens, lengths):
        return torch.arange(tokens.shape[1]) < lengths[:, None]

    def between(self, x, layer):
        return x

    def forward(self, tokens, lengths):
        mask = self.valid(tokens, lengths)[:, None, None]
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer, block in enumerate(self.blocks):
            x = self.between(block(x, mask), layer)
        return self.norm(x)


# -- planted bugs ------------------------------------------------------------------------------------------------------


class OneAhead(Language):
    """The mask of the second layer is off by one."""

    def mask(self, n, layer):
        return torch.ones(n, n, dtype=torch.bool).tril(diagonal=layer)


class MeanOverTime(Language):
    """Subtracts the mean over time, in code between two blocks."""

    def between(self, x, layer):
        return x - x.mean(1, keepdim=True) if layer == 0 else x


class ChoiceOverTime(Language):
    """An argmax over time, which has no gradient, scales every position."""

    def between(self, x, layer):
        return x * (1 + x.detach().argmax(1, keepdim=True) / 10) if layer == 1 else x


class SeesPadding(Encode):
    """The softmax includes padding."""

    def valid(self, tokens, lengths):
        return torch.ones(tokens.shape, dtype=torch.bool)


class MeanOverBatch(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Coupled(Encode):
    """Subtracts the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.centre = MeanOverBatch()

    def between(self, x, layer):
        return self.centre(x) if layer == 0 else x


class DropoutInEval(Language):
    """Functional dropout ignores eval()."""

    def __init__(self):
        super().__init__()
        self.dropout = FunctionalDropout()

    def between(self, x, layer):
        return self.dropout(x)


class FunctionalDropout(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1)


class AlwaysTraining(Language):
    """A module that stays in training mode, though it is deterministic."""

    def __init__(self):
        super().__init__()
        self.part = StaysInTraining()


class StaysInTraining(nn.Module):
    def train(self, mode=True):
        return super().train(True)


class UnusedParameter(Language):
    """A parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(3))


class ModifiesInput(Language):
    """Changes the caller's tokens."""

    def forward(self, tokens):
        out = super().forward(tokens)
        tokens[:, 0] = 0
        return out


class UnsavedWeight(Language):
    """A weight that is not in the state_dict."""

    def state_dict(self, *args, **kwargs):
        found = super().state_dict(*args, **kwargs)
        return {name: x for name, x in found.items() if "blocks.1.attend.out.bias" not in name}

    def load_state_dict(self, state, strict=True, assign=False):
        return super().load_state_dict(state, strict=False, assign=assign)


class Overflowing(Language):
    """Intermediate values overflow float16."""

    def between(self, x, layer):
        return (x * 1e6) / 1e6


class LowPrecisionPositions(Language):
    """Counts positions in the model's dtype, which bfloat16 and float16 cannot do exactly."""

    def between(self, x, layer):
        far = torch.arange(1000, 1000 + x.shape[1], dtype=x.dtype)[:, None]
        return torch.sin(far * 0.7) * 3 + x


class Unmasked(Encode):
    """The softmax of a fully masked row is 0/0, and so is its gradient."""

    def forward(self, tokens, lengths):
        mask = self.valid(tokens, lengths)
        x = self.embed(tokens)
        scores = (x @ x.mT).masked_fill(~mask[:, None], float("-inf"))
        return self.norm(x + scores.softmax(-1) @ x)


class LossyCache(Transformer):
    """Its cache loses the second token at the fourth step."""

    def step(self, tokens, state):
        for cache in state.caches:
            if cache.v is not None and state.beam_table.filled >= 3:
                cache.v[:, :, 1] = 0
        return super().step(tokens, state)


def lossy_cache_model():
    sizes = {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": 1, "decoder_layers": 2}
    return LossyCache(Config(vocab=37, **sizes))


# -- correct models of other shapes ------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Embeds its tokens one column at a time."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(VOCAB, 7), nn.GRUCell(7, 10), nn.Linear(10, 5)

    def forward(self, tokens):
        state, out = torch.zeros(len(tokens), 10, dtype=self.head.weight.dtype), []
        for t in range(tokens.shape[1]):
            state = self.cell(self.embed(tokens[:, t]), state)
            out.append(self.head(state))
        return torch.stack(out, 1)


class Pooled(nn.Module):
    """One vector per row, with an attention mask, a table indexed by brackets, and logits in a dict."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(VOCAB, 8)), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        x = self.table[input_ids] * attention_mask[..., None]
        return {"logits": self.head(x.sum(1) / attention_mask.sum(1, keepdim=True).clamp(min=1))}


class Narrow(Language):
    """Computes its softmax in float32."""

    def forward(self, tokens):
        return super().forward(tokens).float().log_softmax(-1)


class Timed(nn.Module):
    """Takes vectors, a number per row, and a label per row."""

    def __init__(self):
        super().__init__()
        self.label, self.mix, self.head = nn.Embedding(5, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x, time, label):
        x = self.mix(x) + self.label(label)[:, None] + torch.sin(time.to(x.dtype))[:, None, None]
        return self.head(torch.relu(x))


class OneHot(Language):
    """Embeds by a one-hot product, and looks one position ahead."""

    def forward(self, tokens):
        x = F.one_hot(tokens, VOCAB).to(self.embed.weight.dtype) @ self.embed.weight
        return self.head(x + x.roll(-1, 1))
