"""Generation settings of a folder of transformers, as a predictor's default options.

    num_beams=4, length_penalty=0.6     beam_size=4, length_penalty=0.6
    do_sample, temperature, top_k ...   sample, temperature, top_k ...
    max_length=20 of a decoder          max_new_tokens=19: the first token is one of them

Settings are read from generation_config.json or, where there is none, from config.json, as `generate` does. A folder
with any such setting is used as `generate` would use it: what it leaves out has the default of transformers (greedy
search; top_k=50 for samples), except that texts are not cut off after 20 tokens. A folder without settings, or with ids
of tokens alone, has the defaults of Regard. What cannot be done is returned by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import BadInput
from regard.weights.checkpoint_formats import GENERATION_CONFIG, single_token
from regard.weights.folder import read_json

# Settings of transformers that have an option here, with their defaults.
SETTINGS: dict[str, Any] = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "min_length": 0,
    "min_new_tokens": 0,
    "max_length": None,
    "max_new_tokens": None,
}
BEAM_SEARCH = {"length_penalty": "length_penalty", "early_stopping": "early_stopping", "num_beam_groups": "groups"}
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
# Settings without an option here, which older files have in config.json; at these values they do nothing.
UNSUPPORTED: dict[str, Any] = {
    "typical_p": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "penalty_alpha": None,
    "guidance_scale": 1,
}
# Settings that do not change the text: caches, what else is returned, speed.
HARMLESS = re.compile(
    r"_.*|(?!forced_).*_token_id|transformers_version|(use|max)?_?cache.*|output_.*|return_dict.*|low_memory|"
    r".*compile.*|continuous_batching_config|prefill_chunk_size|remove_invalid_values|use_mtp|speculation_type|"
    r"(is_|num_)?assistant.*|target_lookbehind|prompt_lookup_num_tokens|max_matching_ngram_size"
)


class GenerationSettings(NamedTuple):
    """Default options of a predictor, its longest output (None: what the model allows), and what is not honoured."""

    options: dict[str, Any]
    max_new_tokens: int | None
    ignored: list[str]


def read_settings(folder: Path, config: Mapping[str, Any], continues: bool, banned: set[int]) -> GenerationSettings:
    """Return the generation settings of a folder with this config.json.

    `continues`: the model continues a prompt, whose tokens count in min_length and max_length; `banned` are the tokens
    that its predictor never writes.
    """
    file = folder / GENERATION_CONFIG
    known = SETTINGS.keys() | UNSUPPORTED.keys()
    raw = read_json(file) if file.is_file() else {name: config[name] for name in known & config.keys()}
    given = {name: value for name, value in raw.items() if value is not None and not HARMLESS.fullmatch(name)}
    _check_types(given)
    other = {name: value for name, value in given.items() if name not in SETTINGS}
    ignored = {name: value for name, value in other.items() if value and value != UNSUPPORTED.get(name)}
    for name in ("bad_words_ids", "suppress_tokens"):  # words of one token that are never written anyway
        if all(single_token(each) in [*banned] for each in ignored.get(name, ())):
            ignored.pop(name, None)
    eos = raw.get("eos_token_id") or config.get("eos_token_id")
    ends_by_force = "forced_eos_token_id" in given and given["forced_eos_token_id"] == single_token(eos)
    if ends_by_force:
        ignored.pop("forced_eos_token_id", None)  # leaves room for one token less
    if not given.keys() & SETTINGS.keys():
        return GenerationSettings({}, None, [f"{name}={value}" for name, value in ignored.items()])
    said = SETTINGS | given
    options, dropped = _search_options(said, continues)
    ignored |= {name: said[name] for name in dropped}
    if continues:
        ignored |= {name: said[name] for name in ("min_length", "max_length") if said[name]}
        if said["max_new_tokens"]:
            ignored.pop("max_length", None)
        if said["min_new_tokens"]:
            ignored.pop("min_length", None)
        longest, least = said["max_new_tokens"], said["min_new_tokens"]
    else:  # the first token counts
        longest = said["max_new_tokens"] or (said["max_length"] and max(said["max_length"] - 1, 1))
        least = said["min_new_tokens"] or max(said["min_length"] - 1, 0)
    longest = longest and max(longest - ends_by_force, 1)
    options |= {"min_new_tokens": least} if least else {}
    options |= {"max_new_tokens": longest} if continues and longest else {}
    return GenerationSettings(options, longest or None, [f"{name}={value}" for name, value in ignored.items()])


def _check_types(given: Mapping[str, Any]) -> None:
    """Raise `BadInput` for a setting that is not of the kind of its default."""
    for name, default in SETTINGS.items():
        kinds: Any = {bool: bool, float: (int, float)}.get(type(default), int)
        is_never = name == "early_stopping" and given.get(name) == "never"
        if name in given and not is_never and not isinstance(given[name], kinds):
            raise BadInput(f"{name} in the generation settings must be a number or true or false, got {given[name]!r}")


def _search_options(said: Mapping[str, Any], continues: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the options of search or sampling, and the settings that do not go with them here."""
    samples, beams = bool(said["do_sample"]), said["num_beams"]
    options: dict[str, Any] = {"sample": samples, "beam_size": 1 if samples else beams}
    dropped = ["num_beams"] if samples and beams > 1 else []
    if samples:
        options |= {name: said[name] for name in SAMPLING}
    elif beams > 1:
        options |= {option: said[name] for name, option in BEAM_SEARCH.items()}
        options |= {"diversity": said["diversity_penalty"]} if said["num_beam_groups"] > 1 else {}
    if said["num_return_sequences"] <= options["beam_size"] or samples:
        options["num_candidates"] = said["num_return_sequences"]
    else:
        dropped.append("num_return_sequences")
    if continues and options["beam_size"] == 1:
        options["repetition_penalty"] = said["repetition_penalty"]
    elif said["repetition_penalty"] != SETTINGS["repetition_penalty"]:
        dropped.append("repetition_penalty")
    return options | {"no_repeat_ngram_size": said["no_repeat_ngram_size"]}, dropped
