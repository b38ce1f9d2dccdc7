"""Datasets and the batches made of them: in memory where they fit, in shards on the disk where they do not.

home         where the datasets are                                     home.py
Parallel     sentence pairs: Multi30k, Tatoeba, or a folder of yours    parallel.py
PlainText    rows of running text out of a file that fits               plain.py
Documents    two stretches of text a row, words to be guessed           documents.py, corpora.py, masking.py
Sentences    one sentence a row, words to be guessed                    sentences.py
Labelled     texts or pairs of texts with a label                       labelled.py
Tagged       sentences with a tag for each word                         tagged.py
Bracketed    the same with brackets in place of tags, to be written     bracketed.py
Questions    texts, questions about them, and where the answers stand   questions.py
Shards       rows of running text out of token shards                   shards.py
Pronounced   words, letter by letter, and their sounds                  pronounced.py
Mixture      several text-to-text tasks in one stream                   mixture.py, text_tasks.py
Spans        running text with pieces taken out, to be written down     spans.py
Pictures     images out of sample shards                                pictures.py
ImageSet     images with labels, whole in memory: CIFAR-10, a folder    images.py
decoding     image files of any kind to pixels                          decoding.py
augment      images changed at random, batched on their device          augment/
Control      what others did with a pendulum, to learn acting from      control.py, pendulum.py
Arithmetic   sums of long numbers, short ones first                     arithmetic.py
pack_text, pack_images   files and folders into shards                  packing.py, writing.py
Index        what a folder of shards holds, checksums                   index.py
WordSentences   sentences of words, out of several corpora              words.py
Nearby       windows of words, and words drawn against them             nearby.py
SpelledSentences   sentences with the letters of their words            spelled.py
Strokes      lines of handwriting as pen offsets, with their text       strokes.py, pen.py
Digits       spoken digits, strung together                             speech.py
AN4          read speech as frames of cepstra                           an4.py
spoken       batches of recordings, and sound files                     spoken.py
Flat         many sequences end to end in one tensor                    flat.py
TokenBatches, Stream, prefetch                                          batching.py
Shuffle      an order of any number of rows, computed and not held      shuffle.py
moses        the "tokenised, lower-case" form of a text                 moses.py
"""

from __future__ import annotations

from regard.core.spec import Table

DATA: Table = {
    "parallel": ("regard.data.parallel", "Parallel"),
    "shards": ("regard.data.shards", "Shards"),
    "pictures": ("regard.data.pictures", "Pictures"),
    "plain": ("regard.data.plain", "PlainText"),
    "control": ("regard.data.control", "Control"),
    "bracketed": ("regard.data.bracketed", "Bracketed"),
    "documents": ("regard.data.documents", "Documents"),
    "sentences": ("regard.data.sentences", "Sentences"),
    "labelled": ("regard.data.labelled", "Labelled"),
    "tagged": ("regard.data.tagged", "Tagged"),
    "questions": ("regard.data.questions", "Questions"),
    "mixture": ("regard.data.mixture", "Mixture"),
    "spans": ("regard.data.spans", "Spans"),
    "words": ("regard.data.words", "WordSentences"),
    "strokes": ("regard.data.strokes", "Strokes"),
    "pronounced": ("regard.data.pronounced", "Pronounced"),
    "digits": ("regard.data.speech", "Digits"),
    "an4": ("regard.data.an4", "AN4"),
    "arithmetic": ("regard.data.arithmetic", "Arithmetic"),
    "images": ("regard.data.images", "ImageSet"),
}

# What a mixture is made of: tasks whose inputs and outputs are both text.
TEXT_TASKS: Table = {
    "translate": ("regard.data.text_tasks", "Translate"),
    "sentiment": ("regard.data.text_tasks", "Sentiment"),
    "summarise": ("regard.data.text_tasks", "Summarise"),
    "headline": ("regard.data.text_tasks", "Headline"),
    "pronounce": ("regard.data.text_tasks", "Pronounce"),
}
