"""Convert model folders of format 1 and 2 (before the names changed) to format 3, in place.

    python scripts/convert_models.py FOLDER...

Only names change: fields of config.json and keys of model.safetensors. Every tensor keeps its bytes. Training runs are
not converted: finish them with the version that began them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from regard.weights.folder import FORMAT

MODELS = {
    "road": "gru_to_attention",
    "online": "online_alignment",
    "listener": "attention_asr",
    "decision": "decision_transformer",
}
IMAGE = {"classes": "num_classes", "image": "image_size"}
SPEECH = {"inputs": "input_dim", "halvings": "subsampling_layers", "stack": "frame_stack"}
ALWAYS = {"groups": "kv_heads", "depth": "head_dim", "reader": "encoder", "align": "align_width"}
FIELDS: dict[str, dict[str, str]] = {  # by the new name of the model
    "cct": {**IMAGE, "ratio": "mlp_ratio"},
    "resnet": IMAGE,
    "vit": {
        **IMAGE,
        "patch": "patch_size",
        "prefix": "num_prefix_tokens",
        "representation": "representation_size",
        "feed": "feedforward",
    },
    "swin": {**IMAGE, "patch": "patch_size", "window": "window_size", "ratio": "mlp_ratio"},
    "mvit": {
        **IMAGE,
        "patch": "patch_size",
        "keys": "kv_stride",
        "widen": "widen_in",
        "residual": "residual_pooling",
        "frames": "num_frames",
    },
    "transformer": {"feed": "feedforward"},
    "gpt": {"feed": "feedforward"},
    "bert": {"feed": "feedforward"},
    "t5": {
        "feed": "feedforward",
        "buckets": "num_buckets",
        "distance": "max_distance",
        "scaled": "scale_decoder_outputs",
    },
    "decision_transformer": {
        "feed": "feedforward",
        "states": "state_dim",
        "actions": "action_dim",
        "kind": "action_type",
    },
    "ctc": SPEECH,
    "attention_asr": {**SPEECH, "front": "conv_width"},
    "online_alignment": {**SPEECH, "offset": "emission_bias"},
    "neural_gpu": {"stretch": "length_ratio", "spare": "length_offset", "writer": "decoder"},
    "elmo": {
        "letters": "char_dim",
        "longest": "max_word_length",
        "highways": "highway_layers",
        "wider": "extra_layers",
    },
    "gru_to_attention": {"step": "variant"},
    "seq2seq": {"vector": "context"},
    "word2vec": {"reads": "algorithm"},
}
FIELDS["swinv2"] = {**FIELDS["swin"], "trained": "pretrained_window_sizes"}
FIELDS["deit"] = FIELDS["vit"]
VALUES: dict[str, dict[str, str]] = {  # of fields of the new names
    "widen_in": {"feed": "feedforward"},
    "action_type": {"classes": "discrete"},
    "decoder": {"fed": "input_feeding", "free": "no_input_feeding"},
    "context": {"always": "every_step", "first": "initial_state"},
}
SPECS = (  # of parts, inside values that are specs
    (r"\blocation\((.*?)\breach=", r"location(\1radius="),
    (r"\bexperts\((.*?)\btop=", r"moe(\1top_k="),
    (r"\bexperts\(", "moe("),
    (r"\blocal_m\b", "local_monotonic"),
    (r"\blocal_p\b", "local_predictive"),
    (r"\bremembering\b", "neural_coverage"),
    (r"\bover=", "base="),
    (r"\bsoft=", "soft_fraction="),
    (r"backend='plain'", "backend='eager'"),
    (r"backend='products'", "backend='bmm'"),
    (r"backend='folded'", "backend='sdpa_factorized'"),
)
TASKS = {
    "images": "image_classification",
    "listening": "speech_recognition",
    "transcription": "ctc_speech_recognition",
    "masked": "masked_lm",
    "words": "word2vec",
    "language": "language_modeling",
    "span": "extractive_qa",
    "bilm": "bidirectional_lm",
}
TASK_FIELDS = {
    "longest": "max_length",
    "most": "max_new_tokens",
    "wanting": "condition_on_return",
    "pool": "pooling",
    "normal": "normalize",
}
FRAMES = {"rate": "sample_rate", "window": "window_ms", "hop": "hop_ms", "mels": "n_mels", "low": "f_min"}
SPOKEN = ("ctc", "attention_asr", "online_alignment")
KEYS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # of tensors; the models, by their new names, or () for all
    (r"\baligner\.place\.", "aligner.location.", ()),
    (r"\baligner\.bells\.", "aligner.mixture.", ("handwriting",)),
    (r"\baligner\.asked\.", "aligner.gru_query.", ()),
    (r"\baligner\.follow\.", "aligner.gru.", ()),
    (r"\baligner\.content\.", "aligner.gru_key.", ()),
    (r"\baligner\.ask\.", "aligner.position_hidden.", ()),
    (r"\baligner\.answer\.", "aligner.position_score.", ()),
    (r"\baligner\.over\.", "aligner.base.", ()),
    (r"\b(reader|hear)\.forth\.", r"\1.forward_layers.", ()),
    (r"\b(reader|hear)\.back\.", r"\1.backward_layers.", ()),
    (r"\b(cells\.\d+|cell)\.known\.", r"\1.input_gates.", ()),
    (r"\b(cells\.\d+|cell)\.given\.", r"\1.context_gates.", ()),
    (r"^(encoder|decoder)\.enter\.", r"\1.input_proj.", ("convs2s",)),
    (r"^(encoder|decoder)\.leave\.", r"\1.output_proj.", ("convs2s",)),
    (r"\.cross\.ask\.", ".cross.query.", ("convs2s",)),
    (r"\.cross\.take\.", ".cross.output.", ("convs2s",)),
    (r"^head\.numbers\.", "head.params.", ("handwriting",)),
    (r"^head\.first\.", "head.transform.", ("bert",)),
    (r"^first$", "prefix_tokens", ("vit", "deit", "mvit")),
    (r"^represent\.", "pre_logits.", ("vit",)),
    (r"^reader\.", "encoder.", ("rnnsearch", "luong", "seq2seq")),
    (r"^encoder\.reader\.", "encoder.rnn.", SPOKEN),
    (r"^writer\.", "decoder.", ("neural_gpu",)),
    (r"^encoder\.convolve\.", "encoder.convs.", SPOKEN),
    (r"^encoder\.frames\.", "encoder.stack_projection.", SPOKEN),
    (r"^hear\.", "token_encoder.", ("online_alignment",)),
    (r"^over$", "end_of_source", ("online_alignment",)),
    (r"^emit\.", "emitter.", ("online_alignment",)),
    (r"^forth\.", "forward_lstms.", ("elmo",)),
    (r"^back\.", "backward_lstms.", ("elmo",)),
    (r"^encode\.", "char_cnn.", ("elmo",)),
    (r"^first\.", "first_layer.", ("handwriting",)),
    (r"^above\.", "upper_layers.", ("handwriting",)),
    (r"^squeeze\.", "context_projection.", ("seq2seq",)),
    (r"^(encoder\.)?enter_norm\.", r"\1embed_norm.", ("bert", "swin", "swinv2")),
)


def convert(folder: Path) -> str:
    """Convert one folder; return a line for the terminal."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    if config.get("format") not in (1, 2):
        return f"{folder}: format {config.get('format')}, nothing to do"
    name = MODELS.get(config["model"], config["model"])
    rename = lambda key: _renamed(key, name)  # noqa: E731
    weights = folder / "model.safetensors"
    with safe_open(str(weights), "pt") as file:
        about = file.metadata()
        tensors = {rename(key): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, str(weights), about)
    fields = {**ALWAYS, **FIELDS.get(name, {})}
    config |= {
        "format": FORMAT,
        "model": name,
        "config": {fields.get(k, k): _value(fields.get(k, k), v) for k, v in config["config"].items()},
        "task": None if config["task"] is None else _task(config["task"]),
        "tied": {rename(a): rename(b) for a, b in config["tied"].items()},
    }
    config["files"]["model.safetensors"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return f"{folder}: converted, {len(tensors)} tensors"


def _renamed(key: str, model: str) -> str:
    for pattern, new, only in KEYS:
        if not only or model in only:
            key = re.sub(pattern, new, key)
    return key


def _value(field: str, value: Any) -> Any:
    if isinstance(value, str):
        value = VALUES.get(field, {}).get(value, value)
        for pattern, new in SPECS:
            value = re.sub(pattern, new, value)
    return value


def _task(task: dict[str, Any]) -> dict[str, Any]:
    found = {TASK_FIELDS.get(k, k): v for k, v in task.items()} | {"name": TASKS.get(task["name"], task["name"])}
    if found["name"] == "image_classification":
        shown = {
            name: found.pop(name) for name in ("image", "channels", "mean", "std", "crop", "resample") if name in found
        }
        side = shown.pop("image")
        found["preprocess"] = {"size": [side, side] if isinstance(side, int) else side, **shown}
    if "frames" in found:
        frames = found.pop("frames")
        found["preprocess"] = None if frames is None else {FRAMES.get(k, k): v for k, v in frames.items()}
    return found


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for each in sys.argv[1:]:
        print(convert(Path(each)))
