"""Sets: the order of the elements and padding change nothing, and the blocks are those of the paper."""

import pytest
import torch

import regard
from regard.attention.mask import CausalMask, PaddingMask
from regard.attention.mixers import build_mixer
from regard.attention.mixers.isab import PMA
from regard.core.errors import Unsupported
from regard.models import build

ORDER = torch.tensor([3, 0, 6, 2, 5, 1, 4])


@pytest.fixture(autouse=True)
def _double(double):
    pass


def models():
    for attention in ("isab(points=3)", "softmax"):
        yield build("set_transformer", size="tiny", input_dim=3, num_outputs=2, attention=attention).eval()
    for pool in ("mean", "sum", "max"):
        yield build("deep_sets", size="tiny", input_dim=3, num_outputs=2, pool=pool).eval()


def test_the_order_of_the_elements_changes_nothing():
    x = torch.randn(2, 7, 3)
    for model in models():
        out = model(x)
        assert out.shape == (2, 2, 10)
        torch.testing.assert_close(model(x[:, ORDER]), out)
        assert not torch.allclose(model(torch.cat([x[:, :6], x[:, 6:] + 1], 1)), out)  # an element does


def test_a_batch_of_sets_equals_its_singles_whatever_the_padding():
    x, lengths = torch.randn(3, 7, 3), torch.tensor([7, 4, 1])
    loud = torch.where(torch.arange(7)[:, None] < lengths[:, None, None], x, 1e3)
    for model in models():
        out = model(x, lengths)
        assert torch.equal(model(loud, lengths), out)
        for b, n in enumerate(lengths.tolist()):
            torch.testing.assert_close(model(x[b : b + 1, :n]), out[b : b + 1])
        assert torch.isfinite(model(x, torch.tensor([7, 0, 2]))).all()


def heads(x, linear, count):
    return linear(x).unflatten(-1, (count, -1)).transpose(-2, -3)


def mab(block, x, context):
    """norm(H + relu(H W)), H = norm(X + concat(heads) W_o), written out for one set."""
    project = block.attention.project
    q = heads(x, project.q, 2)
    k, v = project.kv(context).unflatten(-1, (2, 2, -1)).unbind(-2)
    k, v = k.transpose(-2, -3), v.transpose(-2, -3)
    attended = ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(-2, -3).flatten(-2)
    h = block.norm(x + block.attention.join.out(attended))
    return block.feed_norm(h + torch.relu(block.feed(h)))


def test_pooling_and_inducing_points_are_the_papers_formulas():
    x = torch.randn(7, 8)
    pool = PMA(8, 2, seeds=3)
    torch.testing.assert_close(pool(x[None])[0], mab(pool.mab, pool.seeds, x))
    mixer = build_mixer("isab(points=3)", width=8, heads=2)
    points = mab(mixer.induce.mab, mixer.induce.seeds, x)
    torch.testing.assert_close(mixer(x[None])[0], mixer.spread(x[None], points[None])[0])
    padded = torch.cat([x, torch.randn(2, 8)])[None]
    torch.testing.assert_close(mixer(padded, mask=PaddingMask(torch.tensor([7])))[0, :7], mixer(x[None])[0])


def test_with_as_many_points_the_cost_is_linear_in_the_elements_and_watch_sees_both_steps():
    model = build("set_transformer", size="tiny", input_dim=3).eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(1, 20, 3))
    shapes = {name: tuple(trace.weights.shape[2:]) for name, trace in seen.items() if name.startswith("encoder.")}
    assert shapes["encoder.blocks.0.mix.induce.mab.attention"] == (8, 20)
    assert shapes["encoder.blocks.0.mix.spread"] == (20, 8)
    assert seen["pool.mab.attention"].weights.shape == (1, 2, 1, 20)


def test_what_it_cannot_do_is_refused():
    mixer, x = build_mixer("isab", width=8, heads=2), torch.randn(1, 5, 8)
    with pytest.raises(Unsupported, match="no mask of kind causal"):
        mixer(x, mask=CausalMask())
    with pytest.raises(Unsupported, match="takes no context"):
        mixer(x, x)
    with pytest.raises(Unsupported, match="within one set"):
        build_mixer("isab", width=8, heads=2, cross=True)
    model = build("bert", vocab=11, width=16, heads=2, layers=1, length=8, attention="isab", positions="rotary")
    with pytest.raises(Unsupported, match="positions that are added"):
        model(torch.randint(11, (1, 4)))
    assert build("bert", vocab=11, width=16, heads=2, layers=1, length=8, attention="isab", head=None)(
        torch.randint(11, (1, 4))
    ).shape == (1, 4, 16)
