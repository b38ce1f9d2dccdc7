"""Sources over a thousand tokens go through everything that translates: forward, gradient, and writing step by step."""

import pytest
import torch

from regard.attention import ALIGNERS
from regard.decoding.beam_search import beam_search, greedy_search
from regard.models import build

LENGTHS = torch.tensor([1103, 1025])
WIDTHS = {"width": 12, "hidden": 16}
FAMILIES = {
    "transformer": {"width": 12, "heads": 2, "ffn": 16, "encoder_layers": 1, "decoder_layers": 1, "length": 1200},
    "seq2seq": WIDTHS | {"readout": None},
    "rnnsearch": WIDTHS | {"readout": None, "encoder": "gru(hidden=8)"},
    "luong": {"width": 12, "hidden": 16, "encoder": "gru(hidden=8)"},
    "convs2s": {"width": 12, "hidden": 16, "encoder_layers": 1, "decoder_layers": 1, "length": 1200},
}
FIRST = ("transformer", "luong", "additive", "monotonic")  # in the default run; the others with the long ones
EVERY = [
    pytest.param(family, aligner, marks=() if (aligner or family) in FIRST else pytest.mark.long)
    for family in FAMILIES
    for aligner in (ALIGNERS if family == "rnnsearch" else [None])
]


def made(family, aligner):
    more = {} if aligner is None else {"aligner": aligner}
    return build(family, vocab=30, **FAMILIES[family], **more)


@pytest.mark.parametrize(("family", "aligner"), EVERY, ids=str)
def test_a_source_of_over_a_thousand_tokens_is_read_and_learned_from(family, aligner):
    model = made(family, aligner).train()
    source, target = torch.randint(4, 30, (2, 1103)), torch.randint(4, 30, (2, 9))
    logits = model(source, target, LENGTHS, torch.tensor([9, 7]))
    assert logits.shape == (2, 9, 30)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize(("family", "aligner"), EVERY, ids=str)
def test_what_is_written_of_a_long_source_does_not_depend_on_its_company(family, aligner):
    model = made(family, aligner).eval()
    source = torch.randint(4, 30, (2, 1103))
    limit = torch.tensor([8, 8])
    with torch.no_grad():
        together = greedy_search(model, source, LENGTHS, max_length=limit)
        alone = greedy_search(model, source[1:, :1025], LENGTHS[1:], max_length=limit[1:])
        found = beam_search(model, source, LENGTHS, beam_size=3, max_length=limit)
    assert together[1].tokens == alone[0].tokens
    assert all(len(each) >= 1 for each in found)
