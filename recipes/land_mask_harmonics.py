"""Land or ocean: spherical harmonics and a SIREN; other codes by model.positions=NAME.

task       say of a place on the globe whether it is land
data       the mask of the Earth at a quarter of a degree; 40,000 places, no cell in two splits
licence    MIT, public domain
paper      Russwurm et al., Geographic Location Encoding with Spherical Harmonics, ICLR 2024, arXiv:2310.06743
machine    one CPU thread, a few minutes
expected   not known yet; no number is published for this mask
measured   not yet
command    regard train land_mask_harmonics --out runs/harmonics
           regard train land_mask_harmonics model.positions=unit_vector --out runs/unit_vector
           regard eval runs/harmonics
"""

from dataclasses import replace

from _graphs import TRAIN

from regard.data.globe.land_mask import LandMask
from regard.models.siren import Config
from regard.tasks.globe import place_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(positions="harmonics(degrees=20)", width=128, layers=2, first_omega=10.0),
        task=place_classification.Config(),
        data=LandMask(),
        train=replace(TRAIN, steps=3000, learning_rate=2e-3, eval_interval=500),
    )
