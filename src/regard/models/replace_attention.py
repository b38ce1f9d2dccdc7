"""Old weights under a new mechanism: the same model with another `attention`, all learned tensors kept.

    replace_attention(model, "window(size=16)")       a new model; q, k, v and everything else as they were learned

Only a mechanism without parameters of its own can be put in: others would have to be learned first, by fine-tuning from
these weights (`model.attention=... train.init_from=...`). Random features and hashes are buffers drawn from a seed, not
parameters, and come with the new mechanism.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import nn

from regard.core.errors import BadInput, Unsupported


def replace_attention(model: nn.Module, spec: str) -> nn.Module:
    """Return a copy of a model in eval mode whose attention is `spec`; its weights are those of the model."""
    config: Any = getattr(model, "config", None)
    kind = type(model).__name__
    if not is_dataclass(config) or "attention" not in {field.name for field in fields(config)}:
        raise BadInput(f"a {kind} has no attention that can be chosen by name")
    changed: Any = replace(config, attention=spec)  # type: ignore[type-var]
    made: nn.Module = type(model)(changed)
    old, new = dict(model.named_parameters()), dict(made.named_parameters())
    for names, problem in (
        (new.keys() - old.keys(), f"'{spec}' has parameters of its own, which this {kind} never learned"),
        (
            old.keys() - new.keys(),
            f"the attention of this {kind} has learned parameters, for which '{spec}' has no place",
        ),
    ):
        if names:
            raise Unsupported(
                f'{problem} ({min(names)}); fine-tune it instead: model.attention="{spec}" train.init_from=MODEL'
            )
    state = {name: x for name, x in model.state_dict().items() if name in old or name in made.state_dict()}
    device = next(model.parameters()).device
    made.load_state_dict(state, strict=False)  # what is left are buffers of the new mechanism
    return made.to(device).eval()
