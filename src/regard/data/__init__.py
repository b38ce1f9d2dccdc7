"""Datasets and the batches made of them: in memory where they fit, in shards on the disk where they do not.

home         where the datasets are                                     home.py
Parallel     sentence pairs: Multi30k, Tatoeba, or a folder of yours    parallel.py
TextFile    rows of running text out of a file that fits               plain.py
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
ImageDataset     images with labels, whole in memory: CIFAR-10, a folder    images.py
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

from regard.core.spec import Registry

DATA: Registry = {
    "parallel_corpus": ("regard.data.text.parallel_corpus", "ParallelCorpus"),
    "token_shards": ("regard.data.shards.token_shards", "TokenShards"),
    "image_shards": ("regard.data.images.image_shards", "ImageShards"),
    "text_file": ("regard.data.text.text_file", "TextFile"),
    "pendulum_episodes": ("regard.data.episodes.pendulum_episodes", "PendulumEpisodes"),
    "chunking_seq2seq": ("regard.data.text.chunking_seq2seq", "ChunkingSeq2Seq"),
    "next_sentence_pairs": ("regard.data.text.next_sentence_pairs", "NextSentencePairs"),
    "masked_sentences": ("regard.data.text.masked_sentences", "MaskedSentences"),
    "labeled_text": ("regard.data.text.labeled_text", "LabeledText"),
    "tagged_sentences": ("regard.data.text.tagged_sentences", "TaggedSentences"),
    "question_answering": ("regard.data.text.question_answering", "QuestionAnswering"),
    "task_mixture": ("regard.data.text.task_mixture", "TaskMixture"),
    "span_corruption": ("regard.data.text.span_corruption", "SpanCorruption"),
    "word_sentences": ("regard.data.text.word_sentences", "WordSentences"),
    "handwriting_lines": ("regard.data.strokes.handwriting", "HandwritingLines"),
    "cmudict": ("regard.data.text.cmudict", "CMUDict"),
    "spoken_digits": ("regard.data.audio.fsdd", "SpokenDigits"),
    "an4": ("regard.data.audio.an4", "AN4"),
    "arithmetic": ("regard.data.synthetic.arithmetic", "Arithmetic"),
    "images": ("regard.data.images.image_dataset", "ImageDataset"),
}

# What a mixture is made of: tasks whose inputs and outputs are both text.
TEXT_TASKS: Registry = {
    "translate": ("regard.data.text.text_tasks", "Translate"),
    "sentiment": ("regard.data.text.text_tasks", "Sentiment"),
    "summarize": ("regard.data.text.text_tasks", "Summarize"),
    "headline": ("regard.data.text.text_tasks", "Headline"),
    "pronounce": ("regard.data.text.text_tasks", "Pronounce"),
}
