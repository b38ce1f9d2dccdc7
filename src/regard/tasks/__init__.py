"""Tasks: one problem per file, with its objective, its metric, its decoding and its way of predicting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports
from regard.core.spec import Registry

# Tasks that the training loop trains and evaluates, by name.
TASKS: Registry = {
    "translation": ("regard.tasks.text.translation", "Translation"),
    "reinforced_translation": ("regard.tasks.reinforce", "ReinforcedTranslation"),
    "reinforced_pronunciation": ("regard.tasks.text.reinforced_pronunciation", "ReinforcedPronunciation"),
    "reinforced_classification": ("regard.tasks.text.reinforced_classification", "ReinforcedClassification"),
    "reinforced_speech_recognition": (
        "regard.tasks.audio.reinforced_speech_recognition",
        "ReinforcedSpeechRecognition",
    ),
    "language_modeling": ("regard.tasks.text.language_modeling", "LanguageModeling"),
    "text_to_text": ("regard.tasks.text.text_to_text", "TextToTextTask"),
    "decision": ("regard.tasks.episodes.decision", "ReturnConditionedControl"),
    "chunking": ("regard.tasks.text.chunking", "Chunking"),
    "masked_lm": ("regard.tasks.text.masked_lm", "MaskedLM"),
    "classification": ("regard.tasks.text.classification", "TextClassification"),
    "pair_classification": ("regard.tasks.text.classification", "TextClassification"),
    "tagging": ("regard.tasks.text.tagging", "Tagging"),
    "extractive_qa": ("regard.tasks.text.extractive_qa", "ExtractiveQA"),
    "story_answering": ("regard.tasks.memory.stories", "StoryAnswering"),
    "word2vec": ("regard.tasks.text.word2vec", "WordVectors"),
    "bidirectional_lm": ("regard.tasks.text.bidirectional_lm", "BidirectionalLM"),
    "handwriting": ("regard.tasks.strokes.handwriting", "Handwriting"),
    "pronunciation": ("regard.tasks.text.pronunciation", "Pronunciation"),
    "ctc_speech_recognition": ("regard.tasks.audio.ctc_speech_recognition", "CTCSpeechRecognition"),
    "speech_recognition": ("regard.tasks.audio.speech_recognition", "SpeechRecognition"),
    "joint_speech_recognition": ("regard.tasks.audio.joint_speech_recognition", "JointSpeechRecognition"),
    "audio_classification": ("regard.tasks.audio.audio_classification", "AudioClassification"),
    "arithmetic": ("regard.tasks.text.arithmetic", "Addition"),
    "symbol_prediction": ("regard.tasks.text.symbol_prediction", "SymbolPrediction"),
    "tapes": ("regard.tasks.memory.tapes", "Tapes"),
    "image_classification": ("regard.tasks.image.image_classification", "ImageClassification"),
    "glimpse_classification": ("regard.tasks.image.glimpse_classification", "GlimpseClassification"),
    "distillation": ("regard.tasks.image.distillation", "Distillation"),
    "captioning": ("regard.tasks.image.captioning", "Captioning"),
    "reinforced_captioning": ("regard.tasks.image.reinforced_captioning", "ReinforcedCaptioning"),
    "image_generation": ("regard.tasks.image.image_generation", "ImageGeneration"),
    "super_resolution": ("regard.tasks.image.image_generation", "ImageGeneration"),
    "variational_image_generation": (
        "regard.tasks.image.variational_image_generation",
        "VariationalImageGeneration",
    ),
    "semantic_segmentation": ("regard.tasks.image.semantic_segmentation", "SemanticSegmentation"),
    "object_detection": ("regard.tasks.image.object_detection", "ObjectDetection"),
    "panoptic_segmentation": ("regard.tasks.image.panoptic_segmentation", "PanopticSegmentation"),
    "depth_estimation": ("regard.tasks.image.depth_estimation", "DepthEstimation"),
    "visual_question_answering": ("regard.tasks.image.visual_question_answering", "VisualQuestionAnswering"),
    "point_classification": ("regard.tasks.points.point_classification", "PointClassification"),
    "point_segmentation": ("regard.tasks.points.point_segmentation", "PointSegmentation"),
    "place_classification": ("regard.tasks.globe.place_classification", "PlaceClassification"),
    "graph_classification": ("regard.tasks.graphs.graph_classification", "GraphClassification"),
    "graph_regression": ("regard.tasks.graphs.graph_regression", "GraphRegression"),
    "node_classification": ("regard.tasks.graphs.node_classification", "NodeClassification"),
}

# The predictor of each task: the model with its tokenizer, ready to use.
PREDICTORS: Registry = {
    "translation": ("regard.tasks.text.translation", "Translator"),
    "language_modeling": ("regard.tasks.text.language_modeling", "TextGenerator"),
    "text_to_text": ("regard.tasks.text.text_to_text", "TextToTextGenerator"),
    "embedding": ("regard.tasks.text.embedder", "TextEmbedder"),
    "masked_lm": ("regard.tasks.text.masked_lm", "FillMask"),
    "decision": ("regard.tasks.episodes.decision", "DecisionAgent"),
    "chunking": ("regard.tasks.text.chunking", "Chunker"),
    "classification": ("regard.tasks.text.classification", "TextClassifier"),
    "pair_classification": ("regard.tasks.text.classification", "TextPairClassifier"),
    "tagging": ("regard.tasks.text.tagging", "Tagger"),
    "extractive_qa": ("regard.tasks.text.extractive_qa", "QuestionAnswerer"),
    "story_answering": ("regard.tasks.memory.stories", "StoryAnswerer"),
    "word2vec": ("regard.tasks.text.word2vec", "NearestWords"),
    "bidirectional_lm": ("regard.tasks.text.bidirectional_lm", "ContextualEmbedder"),
    "handwriting": ("regard.tasks.strokes.handwriting", "HandwritingSynthesizer"),
    "pronunciation": ("regard.tasks.text.pronunciation", "Pronouncer"),
    "ctc_speech_recognition": ("regard.tasks.audio.ctc_speech_recognition", "CTCSpeechRecognizer"),
    "speech_recognition": ("regard.tasks.audio.speech_recognition", "SpeechRecognizer"),
    "joint_speech_recognition": ("regard.tasks.audio.joint_speech_recognition", "JointSpeechRecognizer"),
    "audio_classification": ("regard.tasks.audio.audio_classification", "AudioClassifier"),
    "arithmetic": ("regard.tasks.text.arithmetic", "Calculator"),
    "symbol_prediction": ("regard.tasks.text.symbol_prediction", "SymbolPredictor"),
    "tapes": ("regard.tasks.memory.tapes", "TapePredictor"),
    "image_classification": ("regard.tasks.image.image_classification", "ImageClassifier"),
    "captioning": ("regard.tasks.image.captioning", "Captioner"),
    "glimpse_classification": ("regard.tasks.image.glimpse_classification", "GlimpseClassifier"),
    "image_generation": ("regard.tasks.image.image_generation", "ImageGenerator"),
    "super_resolution": ("regard.tasks.image.image_generation", "SuperResolution"),
    "variational_image_generation": ("regard.tasks.image.variational_image_generation", "LatentImageGenerator"),
    "semantic_segmentation": ("regard.tasks.image.semantic_segmentation", "SemanticSegmenter"),
    "object_detection": ("regard.tasks.image.object_detection", "ObjectDetector"),
    "panoptic_segmentation": ("regard.tasks.image.panoptic_segmentation", "PanopticSegmenter"),
    "depth_estimation": ("regard.tasks.image.depth_estimation", "DepthEstimator"),
    "visual_question_answering": ("regard.tasks.image.visual_question_answering", "VisualQuestionAnswerer"),
    "point_classification": ("regard.tasks.points.point_classification", "PointClassifier"),
    "point_segmentation": ("regard.tasks.points.point_segmentation", "PointSegmenter"),
    "place_classification": ("regard.tasks.globe.place_classification", "PlaceClassifier"),
    "graph_classification": ("regard.tasks.graphs.graph_classification", "GraphClassifier"),
}


def task_name(predictor: object) -> str:
    """Return the name under which `PREDICTORS` has a predictor or its class; "" where it is not registered."""
    cls = predictor if isinstance(predictor, type) else type(predictor)
    where = cls.__module__, cls.__qualname__
    return next((name for name, entry in PREDICTORS.items() if entry == where), "")


_MODULES = {"base": ("SplitTask", "TextTask"), "predictor": ("Predictor",)}
if TYPE_CHECKING:
    from regard.tasks._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, TASKS, PREDICTORS)
