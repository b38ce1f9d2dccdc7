"""Cora with a graph convolutional network. data.dataset=citeseer for Citeseer.

task       the class of every paper
data       Cora, one graph of 2,708 papers; 140 labels to train on, 500 for validation, 1,000 for test
licence    not stated, so no model is shipped
paper      Kipf & Welling, GCN, ICLR 2017, arXiv:1609.02907
machine    one CPU thread, some minutes
expected   81.5 %, Citeseer 70.3 % (recalled: the paper)
measured   80.6 % (79.8 to 81.3), 3 seeds; Citeseer: not yet
command    regard train cora_gcn --out runs/cora_gcn
           regard eval runs/cora_gcn
"""

from dataclasses import replace

from cora_graph_transformer import recipe as transformer

from regard.models.gcn import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    base = transformer()
    train = replace(base.train, learning_rate=1e-2, weight_decay=0.05)
    return replace(base, model=Config(width=16, layers=2, dropout=0.5), train=train)
