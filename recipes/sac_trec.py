"""TREC: what kind of answer does a question want? An encoder that predicts who attends to whom, from scratch.

task       classify questions into six kinds: abbreviation, description, entity, human, location, number
data       TREC-6: 4,906 to train on, 546 of the training split for validation, 500 to test
licence    not stated (research); the model is not shipped
paper      Li et al., SAC, NeurIPS 2020 (arXiv:2003.09833)
machine    a CPU core, minutes
expected   about what star_trec reaches; the edges learn from the log-likelihood of the label
measured   not yet
command    regard train sac_trec --out runs/sac-trec
           regard train sac_trec task.reinforce.baseline=leave_one_out task.reinforce.num_samples=2 --out runs/sac-two
           regard eval runs/sac-trec
"""

from dataclasses import replace

from _text_encoders import DATA, TRAIN

from regard.models.sac import Config
from regard.tasks.reinforce import Reinforce
from regard.tasks.text import reinforced_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=8000, width=128, heads=4, layers=2, length=128, edges=6, dropout=0.3),
        task=reinforced_classification.Config(reinforce=Reinforce(weight=0.1, entropy=0.0)),
        data=DATA,
        train=replace(TRAIN, learning_rate=1e-3),
    )
