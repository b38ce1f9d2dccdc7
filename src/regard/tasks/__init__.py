"""Tasks: one problem per file, with its objective, its metric, its decoding and its way of predicting."""

from __future__ import annotations

from regard.core.spec import Table

# What the training loop trains.
TASKS: Table = {
    "translation": ("regard.tasks.translation", "Translation"),
    "reinforced": ("regard.tasks.reinforced", "ReinforcedTranslation"),
    "reinforced_pronunciation": ("regard.tasks.reinforced_pronunciation", "ReinforcedPronunciation"),
    "reinforced_listening": ("regard.tasks.reinforced_listening", "ReinforcedListening"),
    "language": ("regard.tasks.language", "Language"),
    "text_to_text": ("regard.tasks.text_to_text", "TextTasks"),
    "decision": ("regard.tasks.decision", "Decision"),
    "chunking": ("regard.tasks.chunking", "Chunking"),
    "masked": ("regard.tasks.masked", "MaskedWords"),
    "classification": ("regard.tasks.classification", "Classification"),
    "tagging": ("regard.tasks.tagging", "Tagging"),
    "span": ("regard.tasks.span", "Spans"),
    "words": ("regard.tasks.words", "WordVectors"),
    "bilm": ("regard.tasks.bilm", "BiLM"),
    "handwriting": ("regard.tasks.handwriting", "Handwriting"),
    "pronunciation": ("regard.tasks.pronunciation", "Pronunciation"),
    "transcription": ("regard.tasks.transcription", "Transcription"),
    "listening": ("regard.tasks.listening", "Listening"),
    "arithmetic": ("regard.tasks.arithmetic", "Adding"),
    "images": ("regard.tasks.images", "ImageClasses"),
    "distillation": ("regard.tasks.distillation", "Distillation"),
}

# What a saved model of each task is used with: model and vocabulary in, something to call out.
PREDICTORS: Table = {
    "translation": ("regard.tasks.translator", "Translator"),
    "language": ("regard.tasks.writer", "Writer"),
    "text_to_text": ("regard.tasks.text_writer", "TextToText"),
    "embedding": ("regard.tasks.embedder", "Embedder"),
    "masked": ("regard.tasks.filler", "Filler"),
    "decision": ("regard.tasks.decision", "Player"),
    "chunking": ("regard.tasks.chunker", "Chunker"),
    "classification": ("regard.tasks.classifier", "Classifier"),
    "tagging": ("regard.tasks.tagger", "Tagger"),
    "span": ("regard.tasks.answerer", "Answerer"),
    "words": ("regard.tasks.neighbours", "Words"),
    "bilm": ("regard.tasks.in_context", "InContext"),
    "handwriting": ("regard.tasks.scribe", "Scribe"),
    "pronunciation": ("regard.tasks.pronouncer", "Pronouncer"),
    "transcription": ("regard.tasks.transcriber", "Transcriber"),
    "listening": ("regard.tasks.hearer", "Hearer"),
    "arithmetic": ("regard.tasks.arithmetic", "Calculator"),
    "images": ("regard.tasks.image_classifier", "ImageClassifier"),
}
