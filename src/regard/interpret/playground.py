"""The mechanism lab: what every mechanism, mask, position and aligner of the tables does with one's own tokens.

    contents()                                                    what there is, with the formulas of the files
    attended(tokens, x, "softmax", "causal", "alibi")             scores, mask and matrix, head by head
    aligned(written, read, s, h, "location")                      one row for each step of a recurrent decoder
    placed("rotary", 12)                                          what positions say of every pair

Real numbers, computed by the parts themselves. What is learned in a model is drawn here, from `seed`, and the answer
says so (`drawn`): tokens are vectors (`token_vectors`), q = k = v = x, and a head reads its share of their width.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from zlib import crc32

import torch
from torch import nn

from regard.attention import ALIGNERS, MECHANISMS
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.spec import Registry, Spec, build_part
from regard.interpret.mask_parser import MASKS, parse_mask
from regard.interpret.worked_example import THINKING_MACHINES
from regard.positions import POSITIONS

MAX_TOKENS = 64  # tokens
WIDTH = 64  # of drawn vectors
MAX_SETTING = 512, 1e6  # setting of a part: a whole number is a size, another is none
SCORE_FUNCTIONS = ("additive", "concat", "bilinear", "dot", "scaled_dot")  # the score functions of the lectures
# Settings that show something on a few tokens, where defaults are for sentences; `monotonic` so that it stops at all.
EXAMPLES = {
    "local_monotonic": "local_monotonic(window=1)",
    "local_predictive": "local_predictive(window=2)",
    "location": "location(radius=2)",
    "gmm": "gmm(mixtures=2)",
    "monotonic": "monotonic(offset=0.0)",
}
KnownVectors = Callable[[str], "Tensor | None"]


def describe_parts() -> dict[str, Any]:
    """What there is in the lab: name, first line, formula, and what each may be given."""
    return {
        "mechanisms": _entries(MECHANISMS),
        "masks": [{"name": name, "what": kind.what, "example": kind.example} for name, kind in MASKS.items()],
        "positions": _entries(POSITIONS),
        "aligners": [entry | {"score": entry["name"] in SCORE_FUNCTIONS} for entry in _entries(ALIGNERS)],
        "most": MAX_TOKENS,
        "six_steps": THINKING_MACHINES,
    }


def token_vectors(
    tokens: Sequence[str], known: KnownVectors | None = None, width: int = WIDTH, sharpness: float = 2.0
) -> tuple[Float[Tensor, "N C"], list[bool]]:
    """Return a vector for each token, and which are learned ones (from `known`); the others are seeded by spelling.

    All are scaled so that a token scores about `sharpness` with itself, over heads of a quarter of the width.
    """
    if not tokens or len(tokens) > MAX_TOKENS:
        raise BadInput(f"the lab takes 1 to {MAX_TOKENS} tokens, not {len(tokens)}")
    if not 0 < sharpness <= 100:
        raise BadInput(f"sharpness is a number above 0, up to 100, not {sharpness}")
    learned = [None if known is None else known(token) for token in tokens]
    width = next((len(each) for each in learned if each is not None), width)
    rows = [
        _random_vector(token, width) if each is None else each.double()
        for token, each in zip(tokens, learned, strict=True)
    ]
    x = torch.stack(rows)
    x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-9)
    depth = width / 4
    return x * (4 * sharpness * depth**0.5) ** 0.5, [each is not None for each in learned]


def self_attention(
    tokens: Sequence[str],
    x: Float[Tensor, "N C"],
    mechanism: str = "softmax",
    mask: str = "none",
    positions: str = "none",
    heads: int = 4,
    seed: int = 0,
) -> dict[str, Any]:
    """Self-attention over the tokens: scores before and weights after, H N N, and who may look at whom, N N."""
    n, width = x.shape
    if heads < 1 or width % heads or (width // heads) % 2:
        raise BadInput(f"{heads} heads do not share a width of {width} in even parts; take 1, 2, 4 or 8")
    allowed = parse_mask(mask, n)
    with _trial(seed, mechanism, positions):
        attend = _make_part(MECHANISMS, mechanism, "attention", dropout=0.0, scale=None)
        place, where = _make_positions(positions, n, width, heads)
        values = x
        if place.kind == "added":
            x = values = place(x[None], where.queries)[0]
        elif where.query_vectors is not None:
            x = x + where.query_vectors[0].to(x)
        q, v = (each.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for each in (x, values))  # 1 H N D
        turned = q if where.qk_transform is None else where.qk_transform.transform(q, where.queries)
        bias = None if where.bias is None else where.bias
        weights = attend.weights(turned, turned, allowed, bias, layer_state=PassState().layer(0))
        scores = turned @ turned.mT * (width // heads) ** -0.5
        scores = scores if bias is None else scores + bias.dense()
        out = (weights @ v)[0].transpose(0, 1).flatten(1)
    sees = torch.ones(n, n, dtype=torch.bool) if allowed is None else allowed.dense(1, n, n)[0, 0]
    return {
        "tokens": list(tokens),
        "mechanism": _entry(MECHANISMS, Spec.parse(mechanism).name),
        "positions": _entry(POSITIONS, Spec.parse(positions).name),
        "mask": {"said": mask.strip() or "none", "allowed": sees.int().tolist()},
        "drawn": [name for name, part in (("mechanism", attend), ("positions", place)) if _has_parameters(part)],
        "scores": _to_list(scores[0]),
        "weights": _to_list(weights[0]),
        "moved": _to_list((out - x).norm(dim=-1) / x.norm(dim=-1)),
    }


def align(
    written: Sequence[str],
    read: Sequence[str],
    s: Float[Tensor, "K C"],
    h: Float[Tensor, "M C"],
    aligner: str = "additive",
    seed: int = 0,
) -> dict[str, Any]:
    """How an aligner looks over what is read while one token after another is written: weights 1 K M.

    The states s are the vectors of the tokens that are written. Scores are given where the aligner has them.
    """
    width = h.shape[1]
    with _trial(seed, aligner):
        look = _make_part(ALIGNERS, aligner, "aligner", query_width=s.shape[1], memory_width=width, width=32)
        keys, state, rows, scores = look.keys(h[None]), None, [], []
        for query in s:
            weights, state = look(query[None, None], keys, None, state)
            rows.append(weights[0, 0])
            if Spec.parse(aligner).name in SCORE_FUNCTIONS:
                scores.append(look.scores(query[None, None], keys)[0, 0])
    return {
        "rows": list(written),
        "columns": list(read),
        "aligner": _entry(ALIGNERS, Spec.parse(aligner).name),
        "drawn": ["aligner"] if _has_parameters(look) else [],
        "scores": _to_list(torch.stack(scores)[None]) if scores else None,
        "weights": _to_list(torch.stack(rows)[None]),
    }


def position_matrix(positions: str, n: int, width: int = WIDTH, heads: int = 4, seed: int = 0) -> dict[str, Any]:
    """Return what a positional encoding gives every pair of n positions, as matrices H N N (H = 1 if heads are equal).

    Added to tokens: the cosine of two position vectors. Query/key transform: the score of two equal vectors, divided by
    the largest. Bias: what is added to the scores.
    """
    if not 1 <= n <= MAX_TOKENS:
        raise BadInput(f"the lab takes 1 to {MAX_TOKENS} positions, not {n}")
    with _trial(seed, positions):
        place, where = _make_positions(positions, n, width, heads)
        if place.kind == "added":
            vectors = place.vectors(where.queries)[0].double()
            unit = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-9)
            matrix = (unit @ unit.mT)[None]
        elif place.kind == "qk_transform":
            same = torch.ones(1, 1, n, width // heads, dtype=torch.float64)
            turned = place.transform(same, where.queries)
            matrix = (turned @ turned.mT)[0] / (width // heads)
        elif where.bias is not None:
            matrix = where.bias.dense()[0].double()
        else:
            matrix = torch.zeros(1, n, n)
    return {
        "positions": _entry(POSITIONS, Spec.parse(positions).name) | {"where": place.kind},
        "drawn": ["positions"] if _has_parameters(place) else [],
        "matrix": _to_list(matrix),
    }


# -- parts -------------------------------------------------------------------------------------------------------------


def _make_part(table: Registry, spec: str, kind: str, **sizes: Any) -> Any:
    """A part in float64. Its settings are numbers of a size that is meant, or names: it is made for a stranger."""
    parsed = Spec.parse(spec)
    for value in (*parsed.args, *parsed.kwargs.values()):
        small = isinstance(value, (int, float)) and abs(value) <= MAX_SETTING[type(value) is float]  # nan is not
        if not (value is None or small or (isinstance(value, str) and len(value) <= 40)):
            raise BadInput(f"settings in the lab are names, or numbers of a modest size; not {value!r:.40}")
    return build_part(table, spec, kind, **sizes).double().eval()


def _make_positions(positions: str, n: int, width: int, heads: int) -> tuple[Any, PositionInfo]:
    """Positions by name, in these sizes, and what they say to a mixer."""
    sizes: dict[str, Any] = {"width": width, "heads": heads, "head_dim": width // heads, "length": MAX_TOKENS}
    place = _make_part(POSITIONS, positions, "positions", **sizes)
    line, _ = PositionInfo.sequence_indices(n, n, torch.device("cpu"))
    bias = place.bias(line, line) if place.kind == "bias" else None
    vectors = place.vectors(line) if place.kind == "qk_input" else None
    qk_transform = place if place.kind == "qk_transform" else None
    return place, PositionInfo(line, line, qk_transform, bias, query_vectors=vectors)


def _random_vector(token: str, width: int) -> Float[Tensor, " C"]:
    """The same vector for the same spelling, always."""
    generator = torch.Generator().manual_seed(crc32(token.encode("utf-8", "replace")))
    return torch.randn(width, generator=generator, dtype=torch.float64)


@contextmanager
def _trial(seed: int, *specs: str) -> Iterator[None]:
    """Inside, what is drawn comes from this seed, and what a part was not made to be given is said in a line.

    Afterwards the global stream goes on as if nothing had been drawn.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        try:
            yield
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInput(f"{', '.join(specs):.100} cannot be tried: {why:.120}") from None


def _has_parameters(part: nn.Module) -> bool:
    return next(part.parameters(), None) is not None


def _to_list(values: Tensor) -> Any:
    """Numbers as lists; what is no number (a score of minus infinity) is refused rather than sent."""
    if not bool(values.isfinite().all()):
        raise RegardError("some of these numbers are not finite; take a smaller sharpness or a milder formula")
    return values.double().tolist()


def _entries(table: Registry) -> list[dict[str, Any]]:
    return [_entry(table, name) for name in table]


def _entry(table: Registry, name: str) -> dict[str, Any]:
    """A part as its file explains it."""
    module = import_module(table[name][0])
    text = inspect.cleandoc(module.__doc__ or "")
    formula = [line for line in text.split("\n") if line.startswith("    ")]
    paper = re.search(r"arXiv:\s*([\w./-]*\w)", text)
    parameters = inspect.signature(getattr(module, table[name][1])).parameters
    options = {key: p.default for key, p in parameters.items() if _is_option(p)}
    return {
        "name": name,
        "example": EXAMPLES.get(name, name),
        "what": text.split("\n")[0],
        "formula": inspect.cleandoc("\n" + "\n".join(formula)),
        "paper": paper[1] if paper else None,
        "options": options,
    }


def _is_option(parameter: inspect.Parameter) -> bool:
    """Whether a setting may be chosen in the lab: it has a default of its own that can be written down."""
    return isinstance(parameter.default, (int, float, str, bool, type(None))) and parameter.name not in ("dropout",)
