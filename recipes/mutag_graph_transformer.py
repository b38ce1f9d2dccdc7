"""MUTAG with a graph Transformer; data.dataset=proteins, ptc, ... for other sets of the TU collection.

task       classify molecules, mutagenic or not
data       MUTAG, 188 graphs; fold data.fold of ten is for test, the next one for validation
licence    not stated, so no model is shipped
paper      Dwivedi & Bresson, A Generalization of Transformer Networks to Graphs, 2021, arXiv:2012.09699
machine    one CPU thread, a minute or two for each fold
expected   85 to 90 % (recalled: DGCNN 85.8, GIN 89.4 at the best epoch over the test folds)
measured   79.4 % of ten folds (61.1 to 94.4), seed 1; GCN by the same recipe 82.2 % (66.7 to 88.9)
command    regard train mutag_graph_transformer data.fold=0 --out runs/mutag_0
           regard eval runs/mutag_0
"""

from dataclasses import replace

from _graphs import TRAIN

from regard.data.graphs.tu import TU
from regard.models.graph_transformer import Config
from regard.tasks.graphs import graph_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(width=32, heads=4, layers=3, dropout=0.1),
        task=graph_classification.Config(),
        data=TU(dataset="mutag", positions="random_walk", position_dim=8, batch_size=32),
        train=replace(TRAIN, steps=500, eval_interval=25),
    )
