"""What the house owes: runs and measurements by the names of their files, and how to make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from results_images import MODELS, PERCENTAGES
from results_images import run_name as share
from results_images import train_command as shared
from results_seq2seq import ALIGNERS, PAIRS, SYSTEMS, train_command
from results_seq2seq import run_name as before
from results_tables import strip_seed, table


class Owed(NamedTuple):
    """What it is, how to make it, and how many runs (seeds) of it are wanted."""

    what: str
    how: str
    runs: int = 1


# NAME stands for docs/results/NAME.json and NAME-SEED.json, but for those that have a name of their own here.
OWED_RUNS = {
    "multi30k-en-de-tiny": Owed(
        "Multi30k EN-DE, Transformer tiny, lower-case tokens",
        "regard train transformer_multi30k --out runs/multi30k-en-de-tiny",
    ),
    "multi30k-en-fr-tiny": Owed(
        "Multi30k EN-FR, Transformer tiny, lower-case tokens",
        "regard train transformer_multi30k data.target=fr --out runs/multi30k-en-fr-tiny",
    ),
    "multi30k-en-de-cased": Owed(
        "Multi30k EN-DE, Transformer tiny, cased text",
        "regard train transformer_multi30k data.style=raw data.tokenizer=bytes --out runs/multi30k-en-de-cased",
    ),
    "multi30k-en-de-rnnsearch": Owed(
        "Multi30k EN-DE, GRU with additive attention",
        "regard train rnnsearch_multi30k --out runs/multi30k-en-de-rnnsearch",
    ),
    "tatoeba-en-de": Owed(
        "Tatoeba EN-DE, the translator that ships",
        "regard train transformer_tatoeba --out runs/tatoeba-en-de",
    ),
    "tatoeba-en-fr": Owed(
        "Tatoeba EN-FR, the translator that ships",
        "regard train transformer_tatoeba data.target=fr --out runs/tatoeba-en-fr",
    ),
    "gpt-shakespeare-char": Owed(
        "Tiny Shakespeare, GPT of 6 layers of 384, ships as shakespeare",
        "regard train gpt_shakespeare_char --out runs/shakespeare",
    ),
    "gpt-shakespeare-cpu": Owed(
        "Tiny Shakespeare, a small GPT in three minutes on a CPU", "regard train gpt_shakespeare_cpu --out runs/small"
    ),
    "gpt-shakespeare-experts": Owed(
        "Tiny Shakespeare, small GPT, mixture of 8 experts", "regard train gpt_shakespeare_moe --out runs/experts"
    ),
    "gpt-shakespeare-dense": Owed(
        "Tiny Shakespeare, small GPT, dense baseline",
        "regard train gpt_shakespeare_moe --out runs/dense model.feedforward=swiglu model.ffn=352 task.balance=0",
    ),
    "gpt-ptb": Owed("Penn Treebank, a small GPT over byte pairs", "regard train gpt_ptb --out runs/ptb"),
    "bert-pretrain": Owed(
        "A small BERT, pre-trained on four corpora; the BERT runs below begin with it",
        "regard train bert_pretrain --out runs/bert",
    ),
    "bert-sst2-pretrained": Owed(
        "SST-2, small BERT, pre-trained; seeds 1 to 3",
        "regard train bert_sst2 train.init_from=runs/bert train.seed=1 --out runs/sst2-1",
        3,
    ),
    "bert-sst2-scratch": Owed(
        "SST-2, small BERT, from scratch; seeds 1 to 3",
        "regard train bert_sst2 train.seed=1 --out runs/sst2-scratch-1",
        3,
    ),
    "bert-trec-pretrained": Owed(
        "TREC-6, small BERT, pre-trained; seeds 1 to 3",
        "regard train bert_trec train.init_from=runs/bert train.seed=1 --out runs/trec-1",
        3,
    ),
    "bert-trec-scratch": Owed(
        "TREC-6, small BERT, from scratch; seeds 1 to 3",
        "regard train bert_trec train.seed=1 --out runs/trec-scratch-1",
        3,
    ),
    "bert-conll2000": Owed(
        "CoNLL-2000 chunks by tagging, small BERT, pre-trained",
        "regard train bert_conll2000 train.init_from=runs/bert --out runs/conll2000",
    ),
    "bert-babi": Owed("bAbI 1 to 3, small BERT, from scratch", "regard train bert_babi --out runs/babi"),
    "fill-en": Owed("Tatoeba, hidden words, ships as fill-en", "regard train bert_tatoeba_mlm --out runs/fill-en"),
    "classify-languages": Owed(
        "English, French or German, ships as languages", "regard train bert_language_id --out runs/languages"
    ),
    "pronounce-hard": Owed(
        "Spelling to sounds, hard attention", "regard train hard_attention_cmudict --out runs/hard-attention-cmudict"
    ),
    "pronounce-online": Owed(
        "Spelling to sounds, online hard attention",
        "regard train online_attention_cmudict --out runs/online-attention-cmudict",
    ),
    "digits-listen": Owed(
        "Connected digits, location-aware attention", "regard train digits_attention --out runs/digits-attention"
    ),
    "digits-online": Owed(
        "Connected digits, online hard attention", "regard train digits_online_attention --out runs/online"
    ),
    "an4-ctc": Owed("AN4 by CTC", "regard train an4_ctc --out runs/an4-ctc"),
    "an4-attention": Owed("AN4, location-aware attention", "regard train an4_attention --out runs/an4-attention"),
    "an4-attention-from-ctc": Owed(
        "AN4, location-aware attention, encoder initialised from CTC; seeds 1 to 3",
        "regard train an4_attention train.init_from=runs/an4-ctc train.steps=2000 train.warmup_steps=200 --out runs/an4-attention-from-ctc",
        3,
    ),
    "an4-ctc-unidirectional": Owed(
        "AN4, unidirectional CTC", "regard train an4_ctc_unidirectional --out runs/an4-ctc-unidirectional"
    ),
    "an4-online-attention": Owed(
        "AN4, online hard attention, encoder initialised from unidirectional CTC",
        "regard train an4_online_attention train.init_from=runs/an4-ctc-unidirectional --out runs/an4-online-attention",
    ),
    "bytenet-tatoeba": Owed("Tatoeba by characters, ByteNet", "regard train bytenet_tatoeba --out runs/bytenet"),
    "handwriting-omniglot": Owed(
        "Omniglot, unconditional handwriting", "regard train handwriting_omniglot --out runs/omniglot"
    ),
    "gru-tatoeba": Owed(
        "Tatoeba EN-DE, GRU with additive attention, ships as gru-additive", "regard train gru_tatoeba --out runs/gru"
    ),
    "t5-pretrain": Owed("Running text, T5, 5 + 5 layers of 384", "regard train t5_pretrain --out runs/t5-pretrain"),
    "t5-three-tasks": Owed(
        "Text to text, T5, 5 + 5 layers of 384, three tasks", "regard train t5_three_tasks --out runs/t5-three"
    ),
    "t5-cmudict": Owed("Letters to sounds, T5, 3 + 3 layers of 256", "regard train t5_cmudict --out runs/t5-cmudict"),
    "chunk-conll2000": Owed(
        "CoNLL-2000 chunks written as brackets, Transformer", "regard train transformer_conll2000 --out runs/chunks"
    ),
    "word2vec-tatoeba": Owed("word2vec, ships as words-en", "regard train word2vec_tatoeba --out runs/words"),
    "word2vec-english": Owed(
        "word2vec of four corpora, skip-gram", "regard train word2vec_english --out runs/word2vec_english"
    ),
    "word2vec-cbow": Owed("word2vec of four corpora, CBOW", "regard train word2vec_cbow --out runs/word2vec_cbow"),
    "elmo-brown": Owed("A small ELMo of the Brown corpus", "regard train elmo_brown_cpu --out runs/elmo-brown"),
    "elmo-english": Owed("ELMo of four corpora", "regard train elmo_english --out runs/elmo"),
    "decision-transformer-pendulum": Owed(
        "Decision Transformer, a pendulum",
        "regard train decision_transformer_pendulum train.seed=1 --out runs/pendulum",
        3,
    ),
    "decision-clone": Owed(
        "The same without a wanted return: cloning",
        "regard train decision_transformer_pendulum --out runs/clone task.condition_on_return=false",
    ),
    "cct-cifar10": Owed(
        "CIFAR-10, CCT-7/3x1, 300 epochs, Mixup and CutMix throughout",
        "regard train cct_cifar10 task.mix_until=0 --out runs/cct-300",
    ),
    "cct-cifar10-100": Owed(
        "CIFAR-10, CCT-7/3x1, 100 epochs",
        "regard train cct_cifar10 --out runs/cct-100 train.steps=17500 train.warmup_steps=1000 task.mix_until=10200",
    ),
    "cct-cifar10-muon": Owed(
        "CIFAR-10, CCT-7/3x1, 100 epochs, with Muon",
        "regard train cct_cifar10 --out runs/cct-muon train.steps=17500 train.warmup_steps=1000 task.mix_until=10200 "
        "train.optimizer=muon",
    ),
    "cct-cifar10-muon-300": Owed(
        "CIFAR-10, CCT-7/3x1, 300 epochs, Mixup and CutMix throughout, with Muon",
        "regard train cct_cifar10 train.optimizer=muon --out runs/cct-muon-300",
    ),
    "vit-cifar10": Owed(
        "CIFAR-10, plain ViT, 100 epochs; seeds 1 to 3", "regard train vit_cifar10 train.seed=1 --out runs/vit-100", 3
    ),
    "swin-cifar10": Owed("CIFAR-10, small Swin, 100 epochs", "regard train swin_cifar10 --out runs/swin_cifar10"),
    "mvit-cifar10": Owed("CIFAR-10, small MViT v2, 100 epochs", "regard train mvit_cifar10 --out runs/mvit_cifar10"),
    "resnet-cifar10": Owed("CIFAR-10, ResNet-18, 100 epochs", "regard train resnet_cifar10 --out runs/resnet"),
    "resnet-cifar10-300": Owed(
        "CIFAR-10, ResNet-18, 300 epochs, Mixup and CutMix throughout",
        "regard train resnet_cifar10 --out runs/resnet-300 train.steps=52500 train.warmup_steps=1750 task.mix_until=0",
    ),
    "resnet-cifar10-small": Owed(
        "CIFAR-10, ResNet-18 of 36 channels (3.5 M), 100 epochs",
        "regard train resnet_cifar10 --out runs/resnet-small model.width=36",
    ),
    "deit-cifar10": Owed(
        "CIFAR-10, DeiT, distilled from that ResNet-18, 100 epochs; seeds 1 to 3",
        "regard train deit_cifar10 task.teacher=runs/resnet train.seed=1 --out runs/deit",
        3,
    ),
    **{
        share(model, some): Owed(f"CIFAR-10, {what}, on {some} % of the images, equal updates", shared(model, some))
        for model, what in MODELS.items()
        for some in PERCENTAGES
        if some < 100
    },
    "cct-cifar10-fast": Owed(
        "CIFAR-10, CCT-7/3x2, 45 epochs, with Muon", "regard train cct_cifar10_fast --out runs/cct_cifar10_fast"
    ),
    "cct-mnist": Owed("MNIST, small CCT", "regard train cct_mnist --out runs/cct_mnist"),
    "cct-fashion": Owed("Fashion-MNIST, small CCT, ships as fashion", "regard train cct_fashion --out runs/fashion"),
    "cct-fashion-wide": Owed(
        "Fashion-MNIST, CCT of 7 layers of 192",
        "regard train cct_fashion model.width=192 model.layers=7 model.heads=6 --out runs/fashion-wide",
    ),
    "cct-fashion-long": Owed(
        "Fashion-MNIST, CCT of 7 layers of 256, 188 epochs, Mixup and CutMix throughout, 57,600 images",
        "regard train cct_fashion model.width=256 model.layers=7 model.heads=4 task.mix_until=0 data.val_fraction=0.04 "
        "train.steps=42200 --out runs/fashion-long",
    ),
    "cct-fashion-muon": Owed(
        "Fashion-MNIST, CCT of 7 layers of 256, 150 epochs, with Muon",
        "regard train cct_fashion model.width=256 model.layers=7 model.heads=4 train.optimizer=muon "
        "--out runs/fashion-muon",
    ),
    "pronounce-cpu": Owed("Spelling to sounds, ships as sounds-en", "regard train gru_cmudict_cpu --out runs/sounds"),
    **{
        f"pronounce-{aligner}": Owed(
            f"Spelling to sounds, GRU, aligner {aligner} (about 10 minutes)",
            f"regard train gru_cmudict model.aligner={aligner} --out runs/pronounce-{aligner}",
        )
        for aligner in ALIGNERS
    },
    **{
        before(pair, system): Owed(
            f"Multi30k {pair.upper()}, {about.what} (about {about.minutes} minutes)", train_command(pair, system)
        )
        for pair in PAIRS
        for system, about in SYSTEMS.items()
    },
}
OWED_SPEED = {
    "translate-cpu": Owed("Decoding on a CPU", "python benchmarks/translate.py"),
    "translate-cpu-int8": Owed("Decoding on a CPU, int8 weights", "python benchmarks/translate.py --int8"),
    "translate-memory": Owed("Peak memory while decoding 1,000 sentences", "python benchmarks/translate.py --memory"),
    "translate-cuda": Owed("Decoding on a GPU", "python benchmarks/translate.py --device cuda"),
    "generate-cpu": Owed("Writing with GPT-2 124M on a CPU", "python benchmarks/generate.py"),
    "generate-cuda": Owed("Writing with GPT-2 124M on a GPU", "python benchmarks/generate.py --device cuda"),
    "encode-cpu": Owed("Texts to vectors on a CPU", "python benchmarks/encode.py"),
    "encode-cuda": Owed("Reading with BERT-base on a GPU", "python benchmarks/encode.py --device cuda"),
    "train-cuda": Owed("Training a Transformer on a GPU", "python benchmarks/train.py --model transformer"),
    "train-gpt2-cuda": Owed("Training GPT-2 124M on a GPU", "python benchmarks/train.py"),
    "vision-cpu": Owed("Images to classes on a CPU, beside timm", "python benchmarks/vision.py"),
    "vision-cuda": Owed("Images to classes on a GPU, beside timm", "python benchmarks/vision.py --device cuda"),
    "vision-training-cuda": Owed(
        "Training vision models on a GPU, beside timm", "python benchmarks/vision.py --device cuda --what training"
    ),
    "window-attention-cuda": Owed("Attention within windows on a GPU", "python benchmarks/window_attention.py"),
    "word2vec-cpu": Owed("Training word2vec on a CPU, beside gensim", "python benchmarks/word2vec.py"),
    "probe": Owed(
        "Noun or verb, with MiniLM beside word2vec and ELMo",
        "python benchmarks/linear_probe.py --static words-en --elmo runs/elmo/model --minilm",
    ),
    "cost-cpu": Owed("What an update takes: imagined, and counted in a real one", "python benchmarks/cost.py"),
    "cost-cuda": Owed(
        "What an update takes on a GPU: imagined, and measured", "python benchmarks/cost.py --device cuda"
    ),
    "long-sources": Owed(
        "Sounds of words strung together to over 1,000 letters, by aligner", "python benchmarks/long_sources.py"
    ),
    "augment-cpu": Owed("Images changed at random, on a CPU", "python benchmarks/augment.py"),
    "augment-cuda": Owed("Images changed at random, on a GPU", "python benchmarks/augment.py --device cuda"),
    "shards": Owed("Batches from shards", "python benchmarks/shards.py"),
    "startup": Owed("Start-up time", "python benchmarks/startup.py"),
}


def owed(ours: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]) -> Iterator[str]:
    """What has not been measured yet, and how to."""
    rows = []
    names = [run["name"] if run["name"] in OWED_RUNS else strip_seed(run["name"]) for run in ours]
    for name, each in OWED_RUNS.items():
        there = names.count(name)
        if there < each.runs:
            some = f" ({there} of {each.runs} runs measured)" if there else ""
            rows.append([each.what + some, f"`{each.how}`"])
    rows += [[each.what, f"`{each.how}`"] for name, each in OWED_SPEED.items() if name not in measured]
    if rows:
        yield "## Not measured yet"
        yield table([["what", "command"], *rows])
