"""GenerationConfig: what goes together, what is refused and why, and that predictors share it."""

import pytest

from regard.core.errors import BadInput, Unsupported
from regard.decoding.generation_config import ContinuationConfig, GenerationConfig
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tasks.text.translation import Translator


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size must be from 1 to 256, got 0"),
        ({"num_candidates": 5}, r"num_candidates must be at most beam_size \(4\), got 5"),
        ({"sample": True, "temperature": 0, "num_candidates": 2}, "at temperature 0 all samples are the same"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p must be from 0 to 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"length_penalty": float("inf")}, "length_penalty must be a finite number"),
        ({"must": ["a"], "prefix": "b"}, "must works with plain beam search only"),
        ({"stop": "a"}, "stop must be a list of strings"),
        ({"stop": ["a", ""]}, "a string of stop is empty"),
    ],
    ids=str,
)
def test_invalid_generation_config_is_refused(options, message):
    with pytest.raises(BadInput, match=message) as caught:
        GenerationConfig(**options)
    assert "\n" not in str(caught.value)


def test_temperature_0_is_greedy():
    assert not GenerationConfig(temperature=0.5).is_random
    assert GenerationConfig(sample=True).is_random
    assert GenerationConfig(sample=True, num_candidates=9).num_candidates == 9
    greedy = GenerationConfig(sample=True, temperature=0)
    assert not greedy.is_random
    assert greedy.sampler() is None


def test_a_language_model_samples_unless_it_searches():
    assert ContinuationConfig().is_random
    assert not ContinuationConfig(beam_size=2).is_random
    assert not ContinuationConfig(temperature=0).is_random
    assert ContinuationConfig().max_new_tokens == 200
    with pytest.raises(BadInput, match="top_k does not work with beam search"):
        ContinuationConfig(beam_size=2, top_k=3)


def test_text_predictors_share_generation_config():
    for cls in (Translator, TextToTextGenerator, Pronouncer, TextGenerator):
        assert issubclass(cls.options, GenerationConfig)
    for cls, options in (
        (Translator, {"slide": True}),
        (Pronouncer, {"stop": ["x"]}),
        (TextGenerator, {"prefix": "x"}),
    ):
        (name,) = options
        with pytest.raises(Unsupported, match=f"{name} is for models that"):
            cls.make_options(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 3}, r"beam_size must be a multiple of groups \(3\), got 4"),
        ({"top_k": 5}, "top_k is for sampling; add `sample`, or leave it out"),
        ({"seed": 0}, "seed is for sampling"),
        ({"diversity": 0.5}, "diversity needs `groups` of beams; leave it out"),
        ({"beam_size": 1, "length_penalty": 1.0}, "length_penalty needs beam search"),
        ({"sample": True, "beam_size": 2}, "beam_size is for beam search, not for sampling"),
        ({"sample": True, "length_penalty": 2.0}, "length_penalty is for beam search, not for sampling"),
    ],
    ids=str,
)
def test_an_option_that_was_given_and_has_no_effect_is_refused(options, message):
    with pytest.raises(BadInput, match=message):
        GenerationConfig(**options).refuse_unused(options)


def test_options_that_have_an_effect_are_accepted():
    for options in ({}, {"beam_size": 6, "groups": 3, "diversity": 1.0}, {"sample": True, "top_k": 5, "seed": 1}):
        GenerationConfig(**options).refuse_unused(options)
    for options in ({"temperature": 0.5, "seed": 3}, {"beam_size": 3, "length_penalty": 2.0}):
        ContinuationConfig(**options).refuse_unused(options)
