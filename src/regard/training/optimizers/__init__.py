"""Rules of an update: from a gradient g to new weights w. Decay is apart from that, but for sgd.

    adamw       w -= rate · m / √v            m, v: moving means of g and g²                    two numbers a weight
    muon        w -= rate · orthogonal(m)     matrices inside blocks; AdamW for all else        one, two for the rest
    adafactor   w -= rate · |w| · g / √(rc)   v of a matrix as the product of a row and column  almost none
    sgd         w -= rate · m                 m: running sum of g                               one

A rule is named by a spec, ``muon(momentum=0.9)``. What all have in common (clipping, leaving out what is not finite,
rates by layer, the names of the state) is in optimiser.py; a rule says what state a parameter has and how it moves.
"""

from __future__ import annotations

from regard.core.spec import Registry

OPTIMIZERS: Registry = {
    "adamw": ("regard.training.optimizers.adamw", "AdamW"),
    "muon": ("regard.training.optimizers.muon", "Muon"),
    "adafactor": ("regard.training.optimizers.adafactor", "Adafactor"),
    "sgd": ("regard.training.optimizers.sgd", "SGD"),
}
