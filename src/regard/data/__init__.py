"""Datasets and the batches made of them: in memory where they fit, in shards on disk where they do not.

text/        parallel corpora, running text, masked and labelled sentences, questions, pronunciations, mixtures
images/      image datasets in memory (CIFAR-10, a folder), image shards, scenes with boxes, masks, class maps or depth
audio/       recordings of one's own with labels or transcripts, spoken digits, AN4
strokes/     handwriting as pen offsets
points/      composed shapes, scenes of them, and ModelNet10 as point clouds
graphs/      CSL, sets in the TU format, ESOL, Cora and Citeseer
episodes/    recorded episodes of a pendulum
globe/       land and ocean
synthetic/   sums of long numbers, nested lists (ListOps), associative recall, copying, tapes
augment/     image augmentations, batched on the device
shards/      packing of text and images into shards, the index, token shards
batching     batches of similar length, resumable streams, prefetching
ragged       many sequences in one tensor
shuffle      a permutation that is computed, not stored
data_dir     where the datasets are
"""

from __future__ import annotations

from regard.core.lazy_exports import public_dir
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
    "stories": ("regard.data.text.stories", "Stories"),
    "task_mixture": ("regard.data.text.task_mixture", "TaskMixture"),
    "span_corruption": ("regard.data.text.span_corruption", "SpanCorruption"),
    "word_sentences": ("regard.data.text.word_sentences", "WordSentences"),
    "handwriting_lines": ("regard.data.strokes.handwriting", "HandwritingLines"),
    "cmudict": ("regard.data.text.cmudict", "CMUDict"),
    "spoken_digits": ("regard.data.audio.fsdd", "SpokenDigits"),
    "an4": ("regard.data.audio.an4", "AN4"),
    "labeled_audio": ("regard.data.audio.audio_folder", "LabeledAudio"),
    "transcribed_audio": ("regard.data.audio.audio_folder", "TranscribedAudio"),
    "arithmetic": ("regard.data.synthetic.arithmetic", "Arithmetic"),
    "listops": ("regard.data.synthetic.listops", "ListOps"),
    "recall": ("regard.data.synthetic.symbols", "AssociativeRecall"),
    "copying": ("regard.data.synthetic.symbols", "Copying"),
    "copy_tape": ("regard.data.synthetic.tapes", "CopyTape"),
    "repeat_copy": ("regard.data.synthetic.tapes", "RepeatCopyTape"),
    "associative_recall": ("regard.data.synthetic.tapes", "RecallTape"),
    "images": ("regard.data.images.image_dataset", "ImageDataset"),
    "binarized_images": ("regard.data.images.binarized_images", "BinarizedImages"),
    "translated_images": ("regard.data.images.translated_images", "TranslatedImages"),
    "camvid": ("regard.data.images.camvid", "CamVid"),
    "bccd": ("regard.data.images.coco", "BCCD"),
    "scenes": ("regard.data.images.composed_scenes", "Scenes"),
    "scene_captions": ("regard.data.images.scene_captions", "SceneCaptions"),
    "scene_questions": ("regard.data.images.scene_questions", "SceneQuestions"),
    "rendered_depth": ("regard.data.images.rendered_depth", "RenderedDepth"),
    "middlebury": ("regard.data.images.middlebury", "Middlebury"),
    "coco": ("regard.data.images.coco", "COCO"),
    "voc": ("regard.data.images.voc", "VOC"),
    "yolo": ("regard.data.images.yolo", "YOLO"),
    "flickr8k": ("regard.data.images.flickr8k", "Flickr8k"),
    "mask_folder": ("regard.data.images.mask_folder", "MaskFolder"),
    "shapes": ("regard.data.points.shapes", "Shapes"),
    "point_scenes": ("regard.data.points.scenes", "PointScenes"),
    "land_mask": ("regard.data.globe.land_mask", "LandMask"),
    "csl": ("regard.data.graphs.csl", "CSL"),
    "tu": ("regard.data.graphs.tu", "TU"),
    "esol": ("regard.data.graphs.esol", "ESOL"),
    "citations": ("regard.data.graphs.citations", "Citations"),
    "modelnet10": ("regard.data.points.modelnet10", "ModelNet10"),
}

# Tasks of a mixture: inputs and outputs are both text.
TEXT_TASKS: Registry = {
    "translate": ("regard.data.text.text_tasks", "Translate"),
    "sentiment": ("regard.data.text.text_tasks", "Sentiment"),
    "summarize": ("regard.data.text.text_tasks", "Summarize"),
    "headline": ("regard.data.text.text_tasks", "Headline"),
    "pronounce": ("regard.data.text.text_tasks", "Pronounce"),
}


__dir__ = public_dir(__name__)
