"""The matrix of every attention mechanism on one and the same sentence and image, with formula and cost.

    sentence_subject(["the", "animal", ...])       tokens with vectors of their own; q = k = v
    image_subject(image)                           8 x 8 patches of an image, each a token
    mechanism_gallery([sentence, image])           one entry a mechanism, by the families of the survey
    sentence_subject(tokens, causal=True)          the sentence once more, under a causal mask

A mechanism gets settings that show something on a few tokens (`example_spec`): a window of 3 rather than 256. What it
refuses, a causal mask or tokens that lie on no grid, is an entry with the reason.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch

from regard.attention import MECHANISMS
from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor
from regard.core.spec import Spec, resolve
from regard.interpret.playground import EXAMPLES, KnownVectors, describe_mechanism, self_attention, token_vectors

FAMILIES = (
    "full",
    "sparse by position",
    "sparse by content",
    "linearised",
    "fewer queries or keys",
    "low rank",
    "with a prior",
    "heads",
)
SIDE = 8  # patches to a side of an image
SMALL = 3  # of an argument that makes a mechanism dense when it is as large as the input
DIGITS = 4  # of a weight


@dataclass(frozen=True, eq=False)
class Subject:
    """What all mechanisms are applied to: tokens with a vector each."""

    name: str
    tokens: list[str]
    x: Float[Tensor, "N C"]
    mask: str = "none"
    grid: tuple[int, int] | None = None
    picture: str | None = None  # a PNG in base64, for the page


def sentence_subject(tokens: Sequence[str], known: KnownVectors | None = None, causal: bool = False) -> Subject:
    """Return a sentence, each token with its vector from `known`, or a random one seeded by its spelling."""
    x, _ = token_vectors(tokens, known)
    return Subject("sentence, causal" if causal else "sentence", list(tokens), x, "causal" if causal else "none")


def image_subject(image: Any) -> Subject:
    """Return the 8 x 8 patches of a PIL image, with their centred pixels as vectors."""
    pixels = image.convert("RGB").resize((SIDE * 8, SIDE * 8))
    array = torch.from_numpy(np.asarray(pixels).copy()).double() / 255  # y x 3
    patches = array.unflatten(1, (SIDE, 8)).unflatten(0, (SIDE, 8)).permute(0, 2, 1, 3, 4).flatten(2).flatten(0, 1)
    patches = patches - patches.mean(0)
    generator = torch.Generator().manual_seed(0)
    x = patches @ torch.randn(patches.shape[1], 64, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-9) * 8**0.5 * 2  # scores of about 4 with itself, in 4 heads
    names = [f"row {n // SIDE}, column {n % SIDE}" for n in range(SIDE * SIDE)]
    shown = BytesIO()
    image.convert("RGB").resize((160, 160)).save(shown, "PNG")
    return Subject("image", names, x, grid=(SIDE, SIDE), picture=b64encode(shown.getvalue()).decode("ascii"))


def example_spec(name: str, size: int = SMALL) -> str:
    """Return a mechanism with settings for a few tokens: the arguments that would make it dense are `size`."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    limit = Spec.parse(f"{name}({resolve(MECHANISMS, name, 'attention').traits.limit})")  # type: ignore[attr-defined]
    small = {key: size for key, value in limit.kwargs.items() if type(value) is int and value > size}
    return str(Spec(name, small))


def mechanism_gallery(subjects: Sequence[Subject], heads: int = 4, seed: int = 0) -> dict[str, Any]:
    """Return plain values: the subjects, and for every mechanism its description and its matrix of each subject."""
    found: dict[str, list[dict[str, Any]]] = {family: [] for family in FAMILIES}
    for name in MECHANISMS:
        entry = describe_mechanism(name)
        maps = [_apply(name, subject, heads, seed) for subject in subjects]
        spec = next((each["spec"] for each in maps if "spec" in each), name)
        found.setdefault(entry["family"], []).append(entry | {"spec": spec, "maps": maps})
    return {
        "subjects": [{"name": s.name, "tokens": s.tokens, "picture": s.picture} for s in subjects],
        "families": [{"name": family, "mechanisms": entries} for family, entries in found.items() if entries],
    }


def _on_grid(spec: str) -> str:
    """Return a spec without the number of columns, which the grid has."""
    parsed = Spec.parse(spec)
    return str(Spec(parsed.name, {key: value for key, value in parsed.kwargs.items() if key != "columns"}, parsed.args))


def _apply(name: str, subject: Subject, heads: int, seed: int) -> dict[str, Any]:
    """Return the weights, mean of the heads, or why there are none."""
    why = ""
    for spec in dict.fromkeys((_on_grid(example_spec(name)) if subject.grid else example_spec(name), name)):
        try:
            made = self_attention(
                subject.tokens, subject.x, spec, subject.mask, heads=heads, seed=seed, grid=subject.grid
            )
        except RegardError as error:
            why = why or str(error)
            continue
        mean = np.mean(made["weights"], 0)
        return {"spec": spec, "weights": np.round(mean, DIGITS).tolist(), "drawn": bool(made["drawn"])}
    return {"refused": why}
