"""Mix the weights of a model and of what it became by further training: (1 - share) * first + share * second.

    python scripts/mix_weights.py FIRST SECOND SHARE OUT      python scripts/mix_weights.py en-de runs/de-2 0.6 mixed

A short run learns what it is shown and loses a little of the rest; between both weights most of either is kept. The
share is chosen on validation data. Everything but the weights is that of FIRST; they are stored in int8.

Wortsman et al.: Robust Fine-Tuning of Zero-Shot Models. CVPR 2022. arXiv:2109.01903
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from regard.training.init_from import resolve_source
from regard.training.weight_averaging import copy_weights, named_tensors
from regard.weights.folder import load_model, model_folder, save_model


@torch.no_grad()
def main() -> None:
    """Mix two models and save the result."""
    first, second, share, out = sys.argv[1:]
    saved, other = load_model(resolve_source(first)), load_model(model_folder(Path(second)))
    new = named_tensors(other.model)
    copy_weights(saved.model, {name: x.lerp(new[name], float(share)) for name, x in named_tensors(saved.model).items()})
    save_model(out, saved.model, saved.text, saved.task, saved.card, "int8", saved.domains)


if __name__ == "__main__":
    main()
