"""Word vectors of all the English text available, read the other way round: the words near it predict a word (CBOW).

task       CBOW: the mean of the words near it predicts a word
data       Brown, Penn Treebank, Tatoeba's English and BBC news together: 3.9 million words, 22,102 of them known
licence    research only (BBC, Penn Treebank, Brown); what ships is trained on Tatoeba alone (word2vec_tatoeba)
paper      Mikolov et al., Efficient Estimation of Word Representations in Vector Space, 2013
machine    one CPU core
expected   faster than skip-gram, and vectors of about the same worth
measured   loss 2.001 on validation (of another task than skip-gram, so not to be compared), 2.3 minutes of one core
command    regard train word2vec_cbow --out runs/word2vec_cbow
           regard near bank play --model runs/word2vec_cbow
"""

from _word2vec import DATA, TASK, TRAIN

from regard.models.word2vec import Config
from regard.training.recipe import Recipe


def recipe() -> Recipe:
    return Recipe(model=Config(vocab=30_000, width=128, algorithm="cbow"), task=TASK, data=DATA, train=TRAIN)
