"""The shipped translators, trained on for what people type: "hello", "where is the station", "My name is Anna."

    task       as transformer_tatoeba, from its weights: train.init_from names them (and data.target the language)
    data       Tatoeba as there, with at most 2 translations of a sentence, everyday phrases (100 copies of each) and
               changes to names, numbers, contractions, case and final marks (regard.data.text.pair_augment)
    licence    CC BY 2.0 (tatoeba.org, www.manythings.org/anki); the phrases are ours, Apache-2.0
    paper      Vaswani et al., Attention Is All You Need, NeurIPS 2017 (pre-norm, a small size)
    machine    two CPU cores, about half an hour
    expected   at most 1 BLEU less; input without capital or mark, and common names, are translated well
    measured   mixed with the weights before (scripts/mix_weights.py): EN-DE 46.2 BLEU (before 46.3), EN-FR 50.0 (50.5)
               on test; of 88 first things that people type 83 and 76 are right (73, 65); two cores, seed 1, 2026-11-19
    command    regard train transformer_tatoeba_finetune train.init_from=en-de --out runs/tatoeba-de-2
               regard train transformer_tatoeba_finetune train.init_from=en-fr data.target=fr --out runs/tatoeba-fr-2
               regard eval runs/tatoeba-de-2

The cards of the shipped models have the whole commands. train.precision=bfloat16 is faster where the CPU has it.
"""

from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            vocab=8000, width=256, heads=8, ffn=896, encoder_layers=4, decoder_layers=3, dropout=0.1, norm="pre"
        ),
        task=translation.Config(label_smoothing=0.1, beam_size=4, length_penalty=1.0),
        data=ParallelCorpus(
            "tatoeba",
            "en",
            "de",
            batch_tokens=1024,
            max_length=32,
            pad_to_multiple_of=1,
            max_targets=2,
            phrases=100,
            augment=True,
        ),
        train=Train(
            steps=800,
            learning_rate=8e-4,
            schedule="cosine",
            warmup_steps=30,
            clip_grad_norm=1.0,
            weight_decay=0.01,
            ema_decay=0.99,
            eval_interval=400,
            save_interval=100,
            score_interval=0,
            log_interval=20,
            final_weights="ema",
            save_dtype="int8",
        ),
    )
