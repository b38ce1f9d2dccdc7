"""A small language model and encoder of one's own, and the same with one thing wrong with each."""

import torch
import torch.nn.functional as F
from torch import nn

from regard.models.transformer import Config, Transformer

VOCAB, WIDTH = 29, 12
TOKENS = torch.randint(1, VOCAB, (4, 9), generator=torch.Generator().manual_seed(5))
LENGTHS = torch.tensor([9, 4, 7, 1])
VECTORS = torch.randn(4, 9, WIDTH, generator=torch.Generator().manual_seed(6))


class Attend(nn.Module):
    """Two heads; True in the mask may be seen."""

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
    """Sound: every token sees itself and what came before."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embed.weight

    def mask(self, n, layer):
        return torch.ones(n, n, dtype=torch.bool).tril()

    def between(self, x, layer):
        return x

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for layer, block in enumerate(self.blocks):
            x = self.between(block(x, self.mask(tokens.shape[1], layer)), layer)
        return self.head(x)


class Encode(nn.Module):
    """Sound: every token sees every real one."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(16, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def real(self, tokens, lengths):
        return torch.arange(tokens.shape[1]) < lengths[:, None]

    def between(self, x, layer):
        return x

    def forward(self, tokens, lengths):
        mask = self.real(tokens, lengths)[:, None, None]
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for layer, block in enumerate(self.blocks):
            x = self.between(block(x, mask), layer)
        return self.norm(x)


# -- one thing wrong ---------------------------------------------------------------------------------------------------


class OneAhead(Language):
    """The mask of the second layer is off by one."""

    def mask(self, n, layer):
        return torch.ones(n, n, dtype=torch.bool).tril(diagonal=layer)


class MeanOverTime(Language):
    """Normalised over all times, in the code between two blocks."""

    def between(self, x, layer):
        return x - x.mean(1, keepdim=True) if layer == 0 else x


class ChoiceOverTime(Language):
    """No gradient comes from the future, but a choice does: everything is scaled by what is largest anywhere."""

    def between(self, x, layer):
        return x * (1 + x.detach().argmax(1, keepdim=True) / 10) if layer == 1 else x


class SeesPadding(Encode):
    """The softmax is over the padding too."""

    def real(self, tokens, lengths):
        return torch.ones(tokens.shape, dtype=torch.bool)


class MeanOverBatch(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Coupled(Encode):
    """Every row knows the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.centre = MeanOverBatch()

    def between(self, x, layer):
        return self.centre(x) if layer == 0 else x


class Dropping(Language):
    """Functional dropout does not know about eval()."""

    def __init__(self):
        super().__init__()
        self.restless = Restless()

    def between(self, x, layer):
        return self.restless(x)


class Restless(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1)


class Awake(Language):
    """A part that never goes to sleep, though it draws nothing."""

    def __init__(self):
        super().__init__()
        self.alert = Alert()


class Alert(nn.Module):
    def train(self, mode=True):
        return super().train(True)


class Idle(Language):
    """A parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.ones(3))


class Writes(Language):
    """Changes the caller's tokens."""

    def forward(self, tokens):
        out = super().forward(tokens)
        tokens[:, 0] = 0
        return out


class Loses(Language):
    """A weight that is not in the state_dict."""

    def state_dict(self, *args, **kwargs):
        found = super().state_dict(*args, **kwargs)
        return {name: x for name, x in found.items() if "blocks.1.attend.out.bias" not in name}

    def load_state_dict(self, state, strict=True, assign=False):
        return super().load_state_dict(state, strict=False, assign=assign)


class Huge(Language):
    """Beyond what float16 can hold, for a moment."""

    def between(self, x, layer):
        return (x * 1e6) / 1e6


class Coarse(Language):
    """Times counted in the model's own type, which a narrow one cannot do."""

    def between(self, x, layer):
        far = torch.arange(1000, 1000 + x.shape[1], dtype=x.dtype)[:, None]
        return torch.sin(far * 0.7) * 3 + x


class Unmasked(Encode):
    """A row that sees nothing is 0/0, and so is its gradient."""

    def forward(self, tokens, lengths):
        mask = self.real(tokens, lengths)
        x = self.embed(tokens)
        scores = (x @ x.mT).masked_fill(~mask[:, None], float("-inf"))
        return self.norm(x + scores.softmax(-1) @ x)


class Forgets(Transformer):
    """Its cache loses the second token as soon as the fourth is there."""

    def step(self, tokens, state):
        for cache in state.caches:
            if cache.v is not None and state.beam_table.filled >= 3:
                cache.v[:, :, 1] = 0
        return super().step(tokens, state)


def forgetful():
    sizes = {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": 1, "decoder_layers": 2}
    return Forgets(Config(vocab=37, **sizes))


# -- sound, and unlike the others --------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Looks its tokens up one column at a time."""

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
    """One vector for a row, told by a mask, its table looked up with brackets; logits in a dict."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(VOCAB, 8)), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        x = self.table[input_ids] * attention_mask[..., None]
        return {"logits": self.head(x.sum(1) / attention_mask.sum(1, keepdim=True).clamp(min=1))}


class Narrow(Language):
    """Takes its softmax in float32, whatever it is given."""

    def forward(self, tokens):
        return super().forward(tokens).float().log_softmax(-1)


class Timed(nn.Module):
    """Reads vectors, a number for each row that is no token, and a label that is one."""

    def __init__(self):
        super().__init__()
        self.label, self.mix, self.head = nn.Embedding(5, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x, when, label):
        x = self.mix(x) + self.label(label)[:, None] + torch.sin(when.to(x.dtype))[:, None, None]
        return self.head(torch.relu(x))


class OneHot(Language):
    """Looks nothing up, and sees one place ahead."""

    def forward(self, tokens):
        x = F.one_hot(tokens, VOCAB).to(self.embed.weight.dtype) @ self.embed.weight
        return self.head(x + x.roll(-1, 1))
