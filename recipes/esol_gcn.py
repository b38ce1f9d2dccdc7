"""ESOL with a graph convolutional network: the baseline of the graph Transformer.

task       predict a number for a graph: log solubility, mol/L
data       ESOL, 902 / 113 / 113 molecules, a random split
licence    not stated, so no model is shipped
paper      Kipf & Welling, GCN, ICLR 2017, arXiv:1609.02907
machine    one CPU thread, a few minutes
expected   RMSE 0.97 (recalled: graph convolution of MoleculeNet, on its own random splits)
measured   RMSE 0.988 (0.963 to 1.008), 3 seeds
command    regard train esol_gcn --out runs/esol_gcn
           regard eval runs/esol_gcn
"""

from dataclasses import replace

from esol_graph_transformer import recipe as transformer

from regard.models.gcn import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return replace(transformer(), model=Config(width=160, layers=4, residual=True, dropout=0.1))
