"""Cora with attention along its citations: graph attention as a masked Transformer. data.dataset=citeseer for Citeseer.

task       the class of every paper
data       Cora, one graph of 2,708 papers; 140 labels to train on, 500 for validation, 1,000 for test
licence    not stated, so no model is shipped
paper      Velickovic et al., Graph Attention Networks, ICLR 2018, arXiv:1710.10903; scaled dot products here
machine    one CPU thread, some minutes
expected   83.0 %, Citeseer 72.5 % (recalled: GAT, with its additive scores and without feed-forward layers)
measured   76.6 % (75.1 to 77.9), 3 seeds; Citeseer 65.8 % (65.7 to 66.0), 3 seeds; behind cora_gcn and cora_gat
command    regard train cora_graph_transformer --out runs/cora
           regard eval runs/cora
"""

from dataclasses import replace

from _graphs import TRAIN

from regard.data.graphs.citations import Citations
from regard.models.graph_transformer import Config
from regard.tasks.graphs import node_classification
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(
        model=Config(width=64, heads=8, layers=2, ffn=64, input_dropout=0.6, dropout=0.6, attention_dropout=0.3),
        task=node_classification.Config(),
        data=Citations(dataset="cora"),
        train=replace(
            TRAIN, steps=200, learning_rate=5e-3, weight_decay=5.0, warmup_steps=10, eval_interval=10, log_interval=20
        ),
    )
