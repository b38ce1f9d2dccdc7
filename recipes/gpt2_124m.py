"""GPT-2 124M from scratch on shards of text: half a million tokens an update, bfloat16, rows of 1,024.

    task       predict the next token
    data       a folder that `regard data pack` made of text of your own, ten billion tokens or so (OpenWebText,
               FineWeb); none is available here
    licence    that of the text
    paper      Radford et al., Language Models are Unsupervised Multitask Learners, 2019; karpathy/nanoGPT
    machine    one GPU with 80 GB or more; the speed is in docs/results.md once benchmarks/train.py was run there
    expected   about 3.3 nats per token on FineWeb after 10 billion tokens (remembered, not checked at its source)
    measured   not measured: there are no such data here
    command    regard data pack text/ --out shards
               regard train gpt2_124m data.path=shards --out runs/gpt2

Without biases, as nanoGPT trains it; model.bias=true gives the published model of 124,439,808 parameters.
"""

from regard.data.shards.token_shards import TokenShards
from regard.models.gpt import Config
from regard.tasks.text import language_modeling
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=50257, ffn=3072, dropout=0.0, attention_dropout=0.0, bias=False),
        task=language_modeling.Config(eval_examples=512),
        data=TokenShards("openwebtext", context_length=1024, batch_size=64),
        train=Train(
            steps=19_073,  # of 2^19 tokens: ten billion
            gradient_accumulation_steps=8,
            precision="auto",
            compile_blocks=False,  # a run of days: the whole model as one graph is what was measured
            learning_rate=6e-4,
            schedule="cosine",
            warmup_steps=700,
            min_learning_rate_ratio=0.1,
            betas=(0.9, 0.95),
            eps=1e-8,
            weight_decay=0.1,
            clip_grad_norm=1.0,
            eval_interval=500,
            save_interval=500,
            log_interval=10,
            metric="loss",
        ),
    )
