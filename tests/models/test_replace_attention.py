"""Old weights under a new mechanism: equal where the mechanism is, refused where it would have to be learned."""

import pytest
import torch

from regard.attention import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import BadInput, Unsupported
from regard.core.spec import resolve
from regard.models import build
from regard.models.replace_attention import replace_attention

SIZES = {"width": 16, "heads": 2, "layers": 2, "length": 16}


class ScaledSoftmax(SoftmaxAttention):
    """Softmax attention with a parameter of its own."""

    def __init__(self):
        super().__init__(backend="eager")
        self.factor = torch.nn.Parameter(torch.ones(()))


def test_the_same_weights_under_softmax_give_the_same_outputs():
    torch.manual_seed(0)
    model = build("gpt", vocab=20, **SIZES).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))  # so that scores differ
    tokens = torch.randint(20, (2, 9))
    for spec in ("softmax", "softmax(backend='eager')"):
        made = replace_attention(model, spec)
        torch.testing.assert_close(made(tokens), model(tokens))
        assert made.config.attention == spec
    other = replace_attention(model, "linear")
    assert not torch.allclose(other(tokens), model(tokens), atol=1e-3)
    assert torch.equal(other.embed.weight, model.embed.weight)
    other.embed.weight.data.zero_()
    assert model.embed.weight.abs().sum() > 0  # a copy


@pytest.mark.parametrize("name", MECHANISMS)
def test_limits_of_softmax_keep_the_outputs(name):
    """A mechanism without parameters whose arguments make it softmax attention changes nothing."""
    limit = resolve(MECHANISMS, name, "attention").traits.limit
    model = build("bert", vocab=20, head=None, **SIZES).eval()
    tokens = torch.randint(20, (2, 9))
    own = set(dict(build("bert", vocab=20, head=None, attention=f"{name}({limit})", **SIZES).named_parameters()))
    if own != set(dict(model.named_parameters())):
        with pytest.raises(Unsupported, match="parameters of its own"):
            replace_attention(model, f"{name}({limit})")
        return
    made = replace_attention(model, f"{name}({limit})")
    if limit:
        torch.testing.assert_close(made(tokens), model(tokens), atol=1e-4, rtol=1e-3)


def test_a_mechanism_that_would_have_to_be_learned_is_refused(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "scaled", (__name__, "ScaledSoftmax"))
    softmax, scaled = (build("gpt", vocab=20, attention=name, **SIZES) for name in ("softmax", "scaled"))
    with pytest.raises(Unsupported, match=r"'scaled' has parameters of its own.*train.init_from"):
        replace_attention(softmax, "scaled")
    with pytest.raises(Unsupported, match=r"for which 'softmax' has no place"):
        replace_attention(scaled, "softmax")
    with pytest.raises(BadInput, match="no attention that can be chosen"):
        replace_attention(torch.nn.Linear(2, 2), "linear")
