"""Every model of texts refuses tokens that are no rows, and lengths that are not theirs, in one line."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, RegardError, UnknownName

SIZES = {"width": 32, "heads": 2, "layers": 1, "ffn": 32, "vocab": 50}
MODELS = {
    "gpt": {**SIZES, "length": 64},
    "bert": {**SIZES, "length": 64, "head": "masked"},
    "transformer": {"size": "tiny", "vocab": 50},
    "t5": {"size": "tiny", "vocab": 50},
    "rnnsearch": {"size": "tiny", "vocab": 50},
    "gru_to_attention": {"width": 32, "heads": 2, "vocab": 50},
}
ONE = ("gpt", "bert", "gru_to_attention")  # of one text; the others have a source and a target


def asked(name, tokens, lengths=None):
    """Ask a model of these tokens, or of these as its source."""
    torch.manual_seed(0)
    model = regard.build(name, **MODELS[name]).eval()
    if name in ONE:
        return model(tokens, lengths=lengths)
    return model(tokens, torch.ones(2, 3, dtype=torch.long), lengths)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [torch.tensor([1, 2]), torch.ones(2, 6, 1, dtype=torch.long), torch.ones(2, 6)])
def test_tokens_must_be_two_dimensional_integers(name, tokens):
    what = "tokens" if name in ONE else "source tokens"
    with pytest.raises(BadInput, match=rf"{what} must be integers of shape \(batch, length\)") as caught:
        asked(name, tokens)
    assert str(tuple(tokens.shape)) in str(caught.value)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (torch.tensor([9, 4]), "length 9 is out of range: rows have 6 tokens"),
        (torch.tensor([6, -4]), "length -4 is out of range: rows have 6 tokens"),
        (torch.tensor([6, 5, 4]), r"each of the 2 rows, got torch.int64 of \(3,\)"),
        (torch.tensor([6.0, 4.0]), "got torch.float32"),
        (torch.tensor(6), "one value for each of the 2 rows"),
        ([6, 4], "each of the 2 rows, got list"),
    ],
)
def test_lengths_beyond_the_rows_raise(name, lengths, said):
    with pytest.raises(BadInput, match=said):
        asked(name, torch.ones(2, 6, dtype=torch.long), lengths)


@pytest.mark.parametrize("name", MODELS)
def test_valid_lengths_are_accepted(name):
    assert asked(name, torch.ones(2, 6, dtype=torch.long), torch.tensor([6, 4])).isfinite().all()


@pytest.mark.usefixtures("unchecked")
def test_ids_on_a_device_are_not_read():
    with torch.device("meta"):
        model = regard.build("transformer", size="tiny", vocab=50)
        row = torch.ones(2, 6, dtype=torch.long)
        assert model(row, row, torch.tensor([9, 4])).shape == (2, 6, 50)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_targets_must_be_two_dimensional(name):
    model = regard.build(name, **MODELS[name])
    with pytest.raises(BadInput, match="target tokens must be integers"):
        model(torch.ones(2, 6, dtype=torch.long), torch.tensor([1, 2]))


@pytest.mark.usefixtures("unchecked")
def test_prompts_must_be_two_dimensional():
    with pytest.raises(BadInput, match="prompts must be integers"):
        regard.build("gpt", **MODELS["gpt"]).start(torch.tensor([1, 2]), capacity=4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("size", [3, ["tiny"], "tinny"])
def test_an_unknown_size_suggests_the_nearest(size):
    with pytest.raises(UnknownName, match=r"gpt has no size .*(did you mean|known).*tiny"):
        regard.build("gpt", size=size, vocab=50)


@pytest.mark.parametrize("head", ["classes(0)", "tags(0)", "classes(-1)"])
def test_a_head_without_classes_raises(head):
    with pytest.raises(RegardError, match="must be at least 1"):
        regard.build("bert", **{**MODELS["bert"], "head": head})
