"""Cora with graph attention: attention along citations with additive scores. data.dataset=citeseer for Citeseer.

task       the class of every paper
data       Cora, one graph of 2,708 papers; 140 labels to train on, 500 for validation, 1,000 for test
licence    not stated, so no model is shipped
paper      Veličković et al., Graph Attention Networks, ICLR 2018, arXiv:1710.10903
machine    one CPU thread, a minute
expected   83.0 %, Citeseer 72.5 % (the paper)
measured   82.6 % (82.2 to 83.1), 3 seeds; Citeseer 72.6 % (72.1 to 73.5), 3 seeds
command    regard train cora_gat --out runs/cora_gat
           regard eval runs/cora_gat
"""

from dataclasses import replace

from _graphs import PENALTY
from cora_graph_transformer import recipe as transformer

from regard.models.gat import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    base = transformer()
    return replace(base, model=Config(), train=replace(base.train, steps=300, schedule="constant", **PENALTY))
