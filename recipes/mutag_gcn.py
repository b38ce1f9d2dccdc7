"""MUTAG with a graph convolutional network: the baseline of the graph Transformer.

task       classify molecules, mutagenic or not
data       MUTAG, 188 graphs; fold data.fold of ten is for test, the next one for validation
licence    not stated, so no model is shipped
paper      Kipf & Welling, GCN, ICLR 2017, arXiv:1609.02907
machine    one CPU thread, a minute for each fold
expected   85 to 90 % (recalled: DGCNN 85.8, GIN 89.4 at the best epoch over the test folds)
measured   82.2 % of ten folds (66.7 to 88.9), seed 1
command    regard train mutag_gcn data.fold=0 --out runs/mutag_gcn_0
           regard eval runs/mutag_gcn_0
"""

from dataclasses import replace

from mutag_graph_transformer import recipe as transformer

from regard.models.gcn import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return replace(transformer(), model=Config(width=90, layers=4, residual=True, dropout=0.1))
