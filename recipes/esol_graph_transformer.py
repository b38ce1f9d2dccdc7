"""ESOL with a graph Transformer: solubility of molecules.

task       predict a number for a graph: log solubility, mol/L
data       ESOL, 902 / 113 / 113 molecules, a random split
licence    not stated, so no model is shipped
paper      Dwivedi & Bresson, A Generalization of Transformer Networks to Graphs, 2021, arXiv:2012.09699
machine    one CPU thread, a few minutes
expected   RMSE 0.58 (recalled: MPNN of MoleculeNet, on its own random splits)
measured   RMSE 0.820 (0.788 to 0.846), 3 seeds; GCN by the same recipe 0.988 (0.963 to 1.008), 3 seeds
command    regard train esol_graph_transformer --out runs/esol
           regard eval runs/esol
"""

from dataclasses import replace

from _graphs import TRAIN

from regard.data.graphs.esol import ESOL
from regard.models.graph_transformer import Config
from regard.tasks.graphs import graph_regression
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(width=48, heads=4, layers=4, attend="all", dropout=0.1),
        task=graph_regression.Config(),
        data=ESOL(positions="random_walk", position_dim=8, batch_size=32),
        train=replace(TRAIN, steps=2000, metric="rms_error"),
    )
