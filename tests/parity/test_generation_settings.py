"""no_repeat_ngram_size, min_new_tokens and early_stopping find what transformers' generate finds, over seeds."""

from itertools import pairwise

import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.models.gpt import GPT
from regard.models.t5 import T5
from regard.models.transformer import Transformer
from regard.weights.hf import gpt2, marian, t5
from regard.weights.table import import_state_dict
from tests.long_params import rest_is_long

transformers = pytest.importorskip("transformers")
VOCAB, PAD, EOS, LIMIT = 13, 0, 1, 14


def pair(kind, seed):
    """A random model of transformers and the same here, in float64; its end token is likely now and then."""
    torch.manual_seed(seed)
    ends = {"pad_token_id": PAD, "eos_token_id": EOS}
    if kind == "gpt2":
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2,
            n_positions=40, bos_token_id=EOS, **ends))  # fmt: skip
    elif kind == "t5":
        theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=VOCAB, d_model=16, d_kv=8,
            d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=PAD, **ends))  # fmt: skip
    else:
        theirs = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=VOCAB, d_model=16, encoder_layers=1,
            decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
            decoder_ffn_dim=32, scale_embedding=True, max_position_embeddings=40, decoder_start_token_id=PAD,
            forced_eos_token_id=None, **ends))  # fmt: skip
    theirs = theirs.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:  # not Marian's sinusoids
                parameter.add_(torch.randn_like(parameter) * 0.3)
        if kind == "marian":
            theirs.final_logits_bias[0, EOS] = 2.0
    module, cls = {"gpt2": (gpt2, GPT), "t5": (t5, T5), "marian": (marian, Transformer)}[kind]
    config = module.import_config(theirs.config.to_dict())
    ours = cls(config).double().eval()
    import_state_dict(module.table(config), theirs.state_dict(), ours)
    return theirs, ours


def compare(kind, seed, beams, **settings):
    """Compare the outputs of both for one input; return whether they ended before the limit.

    At the limit transformers ranks texts that were cut off with those that ended, Regard below them.
    """
    theirs, ours = pair(kind, seed)
    torch.manual_seed(seed)
    source = torch.randint(2, VOCAB, (1, 5))
    start = source.shape[1] if kind == "gpt2" else 1
    found = theirs.generate(input_ids=source, attention_mask=torch.ones_like(source), num_beams=beams, do_sample=False,
        max_new_tokens=LIMIT, num_return_sequences=1, **settings)[0, start:].tolist()  # fmt: skip
    expected = found[: found.index(EOS)] if EOS in found else found
    inputs = (source, torch.tensor([source.shape[1]]))
    said = {"previous_tokens": source.tolist()} if kind == "gpt2" else {}
    if beams == 1:
        mine = greedy_search(ours, *inputs, max_length=LIMIT, **settings, **said)[0]
    else:
        mine = beam_search(ours, *inputs, max_length=LIMIT, beam_size=beams, **settings, **said)[0][0]
    if EOS in found or not mine.finished:
        assert mine.tokens == expected, (kind, seed, beams, settings)
    return EOS in found


KINDS = ["gpt2", "t5", "marian"]


@pytest.mark.parametrize("kind", rest_is_long(KINDS, "gpt2", "t5"))
@pytest.mark.parametrize("beams", rest_is_long([1, 3], 3))
def test_ngrams_and_shortest_lengths_equal_generate(kind, beams):
    ended = 0
    for seed in range(3):
        for settings in (
            {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3},
            {"min_new_tokens": 5}, {"no_repeat_ngram_size": 2, "min_new_tokens": 4},
        ):  # fmt: skip
            ended += compare(kind, seed, beams, **settings)
    assert ended >= 1


@pytest.mark.parametrize("kind", rest_is_long(KINDS, "marian"))
@pytest.mark.parametrize("stopping", [True, False, "never"])
def test_early_stopping_equals_generate(kind, stopping):
    ended = 0
    for seed in range(8 if kind == "t5" else 4):
        for penalty in (1.0, 0.0, 2.0):
            ended += compare(kind, seed, 4, early_stopping=stopping, length_penalty=penalty, no_repeat_ngram_size=2)
    assert ended >= 2


def test_the_ways_to_stop_differ():
    """So that the comparison above can fail."""
    found = {}
    for stopping in (True, False, "never"):
        found[stopping] = []
        for seed in range(8):
            _, ours = pair("marian", seed)
            torch.manual_seed(seed)
            source = torch.randint(2, VOCAB, (1, 5))
            search = {"max_length": LIMIT, "beam_size": 4, "length_penalty": 2.0, "early_stopping": stopping}
            outputs = beam_search(ours, source, torch.tensor([5]), num_candidates=4, no_repeat_ngram_size=2, **search)
            found[stopping].append([output.tokens for output in outputs[0]])
    assert found[True] != found[False]
    assert found[False] != found["never"]


def test_samples_repeat_no_ngram_and_are_long_enough():
    _, ours = pair("gpt2", 0)
    source = torch.tensor([[2, 3, 4, 2, 3], [5, 5, 6, 7, 5]])
    found = sample(ours, source, torch.tensor([5, 5]), max_length=20, num_samples=3, no_repeat_ngram_size=2,
        min_new_tokens=6, previous_tokens=source.tolist())  # fmt: skip
    free = sample(ours, source, torch.tensor([5, 5]), max_length=20, num_samples=3)
    for row, outputs in zip(source.tolist(), found, strict=True):
        for output in outputs:
            text = row + output.tokens
            new = {*pairwise(row)}
            for bigram in pairwise(text[len(row) - 1 :]):
                assert bigram not in new
                new.add(bigram)
            assert len(output.tokens) >= 6
    assert min(len(output.tokens) for outputs in free for output in outputs) < 6


def test_a_batch_gives_what_single_inputs_give():
    _, ours = pair("marian", 3)
    source, lengths = torch.randint(2, VOCAB, (4, 6)), torch.tensor([6, 3, 5, 2])
    how = {"max_length": LIMIT, "beam_size": 3, "no_repeat_ngram_size": 2, "min_new_tokens": 3, "early_stopping": True}
    together = beam_search(ours, source, lengths, **how)
    for row in range(4):
        alone = beam_search(ours, source[row : row + 1, : lengths[row]], lengths[row : row + 1], **how)
        assert [h.tokens for h in alone[0]] == [h.tokens for h in together[row]]


@pytest.mark.parametrize(
    "wrong", [{"early_stopping": "always"}, {"no_repeat_ngram_size": -1}, {"min_new_tokens": -2}], ids=str
)
def test_invalid_settings_raise(wrong):
    _, ours = pair("marian", 0)
    with pytest.raises(RegardError, match=next(iter(wrong))):
        beam_search(ours, torch.tensor([[2, 3]]), torch.tensor([2]), max_length=4, **wrong)
