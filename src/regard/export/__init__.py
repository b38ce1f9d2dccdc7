"""Export: a model as graphs of ONNX or torch.export, with all that is needed to run it without Regard.

    export_model(regard.load("languages"), "out", "onnx", check=True)

    model.onnx       the graphs; a model that writes has two: start (reads the input) and step (one more token)
    config.json      the graphs with their inputs, outputs and free axes; labels, preprocessing, special tokens
    tokenizer.json   the tokenizer, if any
    run.py           a short script that answers as Regard does, with numpy and the runtime only
    README.md        how to run it, and the model's card

`PLANS` says how a predictor is exported, `REFUSED` which ones are not, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports
from regard.core.spec import Registry

# How the predictor of a task is exported: a function that returns its `Plan`.
PLANS: Registry = {
    "classification": ("regard.export.text", "plan_classification"),
    "pair_classification": ("regard.export.text", "plan_classification"),
    "tagging": ("regard.export.text", "plan_tagging"),
    "extractive_qa": ("regard.export.text", "plan_extractive_qa"),
    "masked_lm": ("regard.export.text", "plan_masked_lm"),
    "embedding": ("regard.export.text", "plan_embedding"),
    "word2vec": ("regard.export.text", "plan_word_vectors"),
    "story_answering": ("regard.export.text", "plan_story_answering"),
    "language_modeling": ("regard.export.generation", "plan_language_modeling"),
    "translation": ("regard.export.generation", "plan_translation"),
    "text_to_text": ("regard.export.generation", "plan_translation"),
    "pronunciation": ("regard.export.generation", "plan_translation"),
    "captioning": ("regard.export.generation", "plan_captioning"),
    "image_classification": ("regard.export.image", "plan_classification"),
    "glimpse_classification": ("regard.export.image", "plan_classification"),
    "semantic_segmentation": ("regard.export.image", "plan_segmentation"),
    "object_detection": ("regard.export.image", "plan_detection"),
    "depth_estimation": ("regard.export.image", "plan_depth"),
    "visual_question_answering": ("regard.export.image", "plan_question_answering"),
    "ctc_speech_recognition": ("regard.export.audio", "plan_ctc"),
    "speech_recognition": ("regard.export.audio", "plan_recognition"),
    "audio_classification": ("regard.export.audio", "plan_classification"),
    "point_classification": ("regard.export.points", "plan_points"),
    "point_segmentation": ("regard.export.points", "plan_points"),
}

# What is not exported, and why: its network alone can be (`network=True`, ``--network``).
REFUSED = {
    "decision": "its answer is an episode in a simulator, which is Python",
    "chunking": "a parser of brackets decides at every token what may come next, which is Python",
    "bidirectional_lm": "it reads a table of spelled words and an index into it, which are made in Python",
    "handwriting": "every point is sampled from a mixture of Gaussians, with a stop that depends on the aligner",
    "joint_speech_recognition": "its search mixes the scores of two models (CTC and attention) over beams",
    "arithmetic": "its number of steps is that of the digits, and a graph unrolls them to a fixed number",
    "symbol_prediction": "its memory takes one step per symbol, and a graph unrolls them to a fixed number",
    "tapes": "its memory takes one step per symbol, and a graph unrolls them to a fixed number",
    "image_generation": "pixels are sampled one after another by a search of its own",
    "super_resolution": "pixels are sampled one after another by a search of its own",
    "variational_image_generation": "its picture is drawn from random numbers, step by step",
    "panoptic_segmentation": "its segments are merged and renumbered by rules, which are Python",
    "graph_classification": "what it reads of a graph (degrees, eigenvectors of the Laplacian) is computed in Python",
    "place_classification": "places are written in several ways (decimal degrees, compass points), read in Python",
}

FORMATS = ("onnx", "torch")

_MODULES = {"folder": ("export_model", "Exported"), "plan": ("Plan", "Graph")}
if TYPE_CHECKING:
    from regard.export._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
