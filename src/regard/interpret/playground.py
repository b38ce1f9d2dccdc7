"""The mechanism lab: apply any registered mechanism, mask, position encoding or aligner to tokens of one's own.

    describe_parts()                                              all parts, with the formulas of their files
    self_attention(tokens, x, "softmax", "causal", "alibi")       scores, mask and weights of every head
    align(target, source, s, h, "location")                       weights at each step of a recurrent decoder
    position_matrix("rotary", 12)                                 the effect of positions on every pair

The parts themselves compute the numbers. Learned parameters are random here, drawn from `seed`, and the result names
the parts that have some (`drawn`). Tokens are vectors (`token_vectors`), q = k = v = x, split into heads.
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
from regard.core.spec import CONTEXT_ARGUMENTS, Registry, Spec, build_part, check_untrusted, resolve
from regard.interpret.mask_parser import MASKS, parse_mask
from regard.interpret.worked_example import THINKING_MACHINES
from regard.positions import POSITIONS
from regard.positions.similarity import similarity

MAX_TOKENS = 64  # tokens
WIDTH = 64  # of drawn vectors
SCORE_FUNCTIONS = ("additive", "concat", "bilinear", "dot", "scaled_dot")  # the score functions of the lectures
# Settings that show something on a few tokens, where defaults are for sentences; `monotonic` so that it stops at all.
EXAMPLES = {
    "bigbird": "bigbird(block=1, random_blocks=1)",
    "sparse_fixed": "sparse_fixed(stride=3, summary=1)",
    "image_local_1d": "image_local_1d(query_block=3, memory=2)",
    "image_local_2d": "image_local_2d(query_block=(2, 2), memory=(1, 1), columns=4)",
    "axial": "axial(axis='row', columns=4)",
    "linformer": "linformer(rank=3)",
    "reformer": "reformer(chunk=4)",
    "clustered": "clustered(clusters=3)",
    "improved_clustered": "improved_clustered(clusters=3, top_k=2)",
    "routing": "routing(clusters=2, window=4)",
    "sinkhorn": "sinkhorn(block=2)",
    "sortcut": "sortcut(block=2)",
    "informer": "informer(factor=1)",
    "per_head": "per_head(parts=('window(window=3)', 'softmax'))",
    "local_monotonic": "local_monotonic(window=1)",
    "local_predictive": "local_predictive(window=2)",
    "location": "location(radius=2)",
    "gmm": "gmm(mixtures=2)",
    "monotonic": "monotonic(offset=0.0)",
}
KnownVectors = Callable[[str], "Tensor | None"]


def describe_parts() -> dict[str, Any]:
    """Return all parts of the lab: name, first line, formula and options."""
    return {
        "mechanisms": [describe_mechanism(name) for name in MECHANISMS],
        "masks": [{"name": name, "what": kind.what, "example": kind.example} for name, kind in MASKS.items()],
        "positions": _entries(POSITIONS),
        "aligners": [entry | {"score": entry["name"] in SCORE_FUNCTIONS} for entry in _entries(ALIGNERS)],
        "most": MAX_TOKENS,
        "six_steps": THINKING_MACHINES,
    }


def describe_mechanism(name: str) -> dict[str, Any]:
    """Return a mechanism as its file and its traits describe it."""
    traits: Any = resolve(MECHANISMS, name, "attention").traits  # type: ignore[attr-defined]
    about = {"family": traits.family, "cost": traits.cost, "causality": traits.causality, "exact": traits.exact}
    return _entry(MECHANISMS, name) | about


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
    grid: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Return scores and weights of self-attention over the tokens, H N N, and the mask, N N.

    `grid` says that the tokens lie on a grid, row by row.
    """
    n, width = x.shape
    if heads < 1 or width % heads or (width // heads) % 2:
        raise BadInput(f"{heads} heads do not share a width of {width} in even parts; take 1, 2, 4 or 8")
    allowed = parse_mask(mask, n)
    with _trial(seed, mechanism, positions):
        sizes = {"width": width, "heads": heads, "kv_heads": heads, "head_dim": width // heads, "length": MAX_TOKENS}
        causal = allowed is not None and "causal" in allowed.kinds
        place = {"causal": causal, "grid": grid, "prefix": 0}
        attend = _make_part(MECHANISMS, mechanism, "attention", dropout=0.0, scale=None, **sizes, **place)
        encoding, where = _make_positions(positions, n, width, heads)
        values = x
        if encoding.kind == "added":
            x = values = encoding(x[None], where.queries)[0]
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
        "mechanism": describe_mechanism(Spec.parse(mechanism).name),
        "positions": _entry(POSITIONS, Spec.parse(positions).name),
        "mask": {"said": mask.strip() or "none", "allowed": sees.int().tolist()},
        "drawn": [name for name, part in (("mechanism", attend), ("positions", encoding)) if _has_parameters(part)],
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
    """Return the weights of an aligner over the source tokens at every target token: 1 K M.

    The decoder states s are the vectors of the target tokens. Scores are returned if the aligner has a score function.
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

    What the numbers are: `regard.positions.similarity`.
    """
    if not 1 <= n <= MAX_TOKENS:
        raise BadInput(f"the lab takes 1 to {MAX_TOKENS} positions, not {n}")
    with _trial(seed, positions):
        place, _ = _make_positions(positions, n, width, heads)
        matrix = similarity(place, (1, n))
    return {
        "positions": _entry(POSITIONS, Spec.parse(positions).name) | {"where": place.kind},
        "drawn": ["positions"] if _has_parameters(place) else [],
        "matrix": _to_list(matrix),
    }


# -- parts -------------------------------------------------------------------------------------------------------------


def _make_part(table: Registry, spec: str, kind: str, **sizes: Any) -> Any:
    """Build a part in float64; its spec comes over the network."""
    check_untrusted(spec)
    return build_part(table, spec, kind, **sizes).double().eval()


def _make_positions(positions: str, n: int, width: int, heads: int) -> tuple[Any, PositionInfo]:
    """Build a position encoding, and return it with the `PositionInfo` that a mixer gets."""
    sizes: dict[str, Any] = {"width": width, "heads": heads, "head_dim": width // heads, "length": MAX_TOKENS}
    place = _make_part(POSITIONS, positions, "positions", **sizes)
    line, _ = PositionInfo.sequence_indices(n, n, torch.device("cpu"))
    bias = place.bias(line, line) if place.kind == "bias" else None
    vectors = place.vectors(line) if place.kind == "qk_input" else None
    qk_transform = place if place.kind == "qk_transform" else None
    return place, PositionInfo(line, line, qk_transform, bias, query_vectors=vectors)


def _random_vector(token: str, width: int) -> Float[Tensor, " C"]:
    """Return a random vector that depends on the spelling alone."""
    generator = torch.Generator().manual_seed(crc32(token.encode("utf-8", "replace")))
    return torch.randn(width, generator=generator, dtype=torch.float64)


@contextmanager
def _trial(seed: int, *specs: str) -> Iterator[None]:
    """Draw random numbers from this seed inside the block, and turn errors of a part into one line.

    The global random state is restored afterwards.
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
    """Return numbers as lists; raise if one is not finite, which JSON cannot represent."""
    if not bool(values.isfinite().all()):
        raise RegardError("some of these numbers are not finite; take a smaller sharpness or a milder formula")
    return values.double().tolist()


def _entries(table: Registry) -> list[dict[str, Any]]:
    return [_entry(table, name) for name in table]


def _entry(table: Registry, name: str) -> dict[str, Any]:
    """Return a part as its file describes it."""
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
    """Return whether a parameter is an option of the lab: it has a plain default."""
    plain = isinstance(parameter.default, (int, float, str, bool, type(None)))
    return plain and parameter.name not in CONTEXT_ARGUMENTS | {"dropout", "kv_heads", "causal", "prefix"}
