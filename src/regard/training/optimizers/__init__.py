"""Update rules of the optimizer: from a gradient g to new weights w. Weight decay is decoupled, except in adam and sgd.

    adamw       w -= lr · m / √v              m, v: moving means of g and g²                    two numbers per weight
    adam        the same, decay · w added to g first                                    two
    muon        w -= lr · orthogonal(m)       matrices inside blocks; AdamW for all else        one, two for the rest
    adafactor   w -= lr · |w| · g / √(rc)     v of a matrix as the product of a row and column  almost none
    sgd         w -= lr · m                   m: running sum of g                               one

A rule is named by a spec, ``muon(momentum=0.9)``. What all rules share (clipping, skipping non-finite gradients,
layer-wise learning rates, names of the state) is in optimizer.py; a rule defines the state of a parameter and its
update. AdamW and SGD run torch.optim's fused kernels where the device has them. The rest is written out here, since
torch.optim's other implementations cannot skip an update without a host synchronisation (`found_inf`), and its
Adafactor and Muon know neither DTensors nor fused projections.
"""

from __future__ import annotations

from regard.core.spec import Registry

OPTIMIZERS: Registry = {
    "adamw": ("regard.training.optimizers.adamw", "AdamW"),
    "adam": ("regard.training.optimizers.adam", "Adam"),
    "muon": ("regard.training.optimizers.muon", "Muon"),
    "adafactor": ("regard.training.optimizers.adafactor", "Adafactor"),
    "sgd": ("regard.training.optimizers.sgd", "SGD"),
}
