"""What the tests of the three convolutional models share: small models."""

import torch

import regard

SMALL = {
    "convs2s": {"width": 12, "hidden": 10, "encoder_layers": 2, "decoder_layers": 2, "extra_layers": ((14, 3), (6, 1))},
    "bytenet": {"width": 12, "encoder_layers": 3, "decoder_layers": 4, "dilations": (1, 2, 4)},
    "multiplicative": {"width": 12, "encoder_layers": 2, "decoder_layers": 3, "block": "multiplicative"},
    "neural_gpu": {"width": 6, "rows": 3, "length_offset": 2.0},
    "image": {"width": 6, "rows": 3, "length_offset": 2.0, "decoder": "image"},
}
FAMILY = {"multiplicative": "bytenet", "image": "neural_gpu"}


def small(name, seed=0, louder=2.0, **settings):
    """A small model with larger weights: sharper, more varied outputs than a fresh one's."""
    torch.manual_seed(seed)
    model = regard.build(FAMILY.get(name, name), vocab=11, **SMALL[name] | {"dropout": 0.1} | settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(louder)
    return model.double().eval()
