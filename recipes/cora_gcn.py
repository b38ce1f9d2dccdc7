"""Cora with a graph convolutional network. data.dataset=citeseer for Citeseer.

task       the class of every paper
data       Cora, one graph of 2,708 papers; 140 labels to train on, 500 for validation, 1,000 for test
licence    not stated, so no model is shipped
paper      Kipf & Welling, GCN, ICLR 2017, arXiv:1609.02907
machine    one CPU thread, some minutes
expected   81.5 %, Citeseer 70.3 % (recalled: the paper)
measured   81.4 % (81.0 to 81.9), 3 seeds; Citeseer 71.3 % (70.1 to 72.7), 3 seeds
command    regard train cora_gcn --out runs/cora_gcn
           regard eval runs/cora_gcn
"""

from dataclasses import replace

from _graphs import PENALTY
from cora_graph_transformer import recipe as transformer

from regard.models.gcn import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    base = transformer()
    train = replace(base.train, learning_rate=1e-2, schedule="constant", **PENALTY)
    return replace(base, model=Config(width=16, layers=2, dropout=0.5), train=train)
