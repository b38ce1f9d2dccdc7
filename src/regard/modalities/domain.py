"""Domain: is an input like what a model was trained on? What differs is said, so that no answer misleads silently.

    WordDomain     texts: characters and words that the training data does not have
    ImageDomain    pictures: colours, contrasts and layout, as a Mahalanobis distance from the training pictures

A domain is fitted to training data. Its threshold is the quantile of held-out data of the same kind that leaves
`FALSE_ALARMS` above it; the rate is measured once more on a third part, and on foreign inputs, and stands in the
model's card (scripts/calibrate_domain.py). It takes some 10 kB beside the model (`FILE`). A predictor has the domains
of its inputs in `domains`; whoever runs it asks `domain_notes`.

Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples. ICLR 2017. arXiv:1610.02136
Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples. NeurIPS 2018.
arXiv:1807.03888
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from regard.core.errors import BadInput

FILE = "domain.safetensors"
FALSE_ALARMS = 0.01  # of held-out inputs that are noted all the same
MAX_ABOUT = 200  # characters of a stored description


@dataclass(frozen=True, eq=False)
class Domain:
    """What a model was trained on (`about`), and how unusual an input may be."""

    about: str
    threshold: float

    kind: ClassVar[str]  # of the inputs that it checks

    def seen_through(self, preprocess: Any) -> Self:
        """Return the domain of what a predictor with this preprocessing is given; texts have none."""
        return self

    def surprise(self, value: Any) -> float:
        """Return how unusual an input is; above `threshold` it is noted."""
        raise NotImplementedError

    def describe(self, value: Any) -> str:
        """Return what is unusual about an input; "" where nothing is."""
        raise NotImplementedError

    def note(self, value: Any) -> str:
        """Return a sentence about an input that is unlike the training data; "" for one that is like them."""
        found = self.describe(value)
        return f"{found}; this model was trained on {self.about}, so the answer may be wrong" if found else ""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what is stored besides `about`, `threshold` and `settings`."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return further stored values as JSON can hold them."""
        return {}

    @classmethod
    def restore(
        cls, about: str, threshold: float, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        """Return the domain of stored values; raise `BadInput` where they are not of this kind."""
        raise NotImplementedError


def quantile(surprises: Iterable[float]) -> float:
    """Return the threshold that leaves `FALSE_ALARMS` of held-out inputs above it."""
    return float(np.quantile(np.fromiter(surprises, float), 1 - FALSE_ALARMS, method="higher"))


def domain_types() -> dict[str, type[Domain]]:
    """Return the types of domains by the kind of input."""
    from regard.modalities.image_domain import ImageDomain
    from regard.modalities.word_domain import WordDomain

    return {each.kind: each for each in (WordDomain, ImageDomain)}


def save_domains(file: Path, domains: Mapping[str, Domain]) -> None:
    """Write the domains of a predictor's inputs, by input."""
    from safetensors.numpy import save_file

    about: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for field, domain in domains.items():
        own = domain.settings()
        about[field] = {"kind": domain.kind, "about": domain.about, "threshold": domain.threshold, "settings": own}
        arrays |= {f"{field}.{name}": np.ascontiguousarray(each) for name, each in domain.arrays().items()}
    save_file(arrays, file, metadata={"domains": json.dumps(about, ensure_ascii=False)})
    file.chmod(file.parent.stat().st_mode & 0o666)


def load_domains(file: Path) -> dict[str, Domain]:
    """Read what `save_domains` wrote; a damaged file raises `BadInput`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as stored:
            about = json.loads((stored.metadata() or {})["domains"])
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        return {field: _restore(field, each, arrays) for field, each in about.items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{file} is damaged: it holds no domain of a model ({type(error).__name__}: {error})") from None


def _restore(field: str, stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Domain:
    about, threshold = str(stored["about"]), float(stored["threshold"])
    if len(about) > MAX_ABOUT or not about.isprintable() or not math.isfinite(threshold):
        raise ValueError("its description or threshold is of no use")
    own = {name.removeprefix(f"{field}."): each for name, each in arrays.items() if name.startswith(f"{field}.")}
    return domain_types()[stored["kind"]].restore(about, threshold, stored["settings"], own)


def notes_of(domains: Mapping[str, Domain], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the note about each row of inputs by field; "" where all are like the training data."""
    return [
        "; ".join(filter(None, (domain.note(row[field]) for field, domain in domains.items() if field in row)))
        for row in rows
    ]
