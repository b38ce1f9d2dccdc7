"""Windowed mixers: against attention on the whole grid with a mask, and the law of their maps."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.attention.window_attention import CosineWindowAttention, WindowAttention
from regard.core.errors import RegardError
from regard.positions.bias.continuous import ContinuousWindowBias
from regard.positions.bias.window import TableWindowBias

KINDS = [WindowAttention, CosineWindowAttention]
SIZES = [(8, 12), (7, 10), (4, 9), (3, 5), (1, 1), (13, 4)]
HEADS, WIDTH, WINDOW = 3, 12, (4, 3)


@pytest.fixture(autouse=True)
def _double(double):
    pass


def mixer(kind, shifted=False, **settings):
    positions = (TableWindowBias if kind is WindowAttention else ContinuousWindowBias)(HEADS, WINDOW)
    made = kind(WIDTH, HEADS, positions, shifted, **settings).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return made


def turned(size):
    """How far a shifted layer turns a grid of this size."""
    return [w // 2 if s > w else 0 for s, w in zip(size, WINDOW, strict=True)]


def everywhere(mix, x, shifted):
    """The same attention over all pairs of cells, those of other windows masked: cells, not windows, are looked at."""
    y, x_ = x.shape[1:3]
    rows, columns = (n.flatten() for n in torch.meshgrid(torch.arange(y), torch.arange(x_), indexing="ij"))
    shift = turned((y, x_)) if shifted else (0, 0)
    window = torch.stack([(rows - shift[0]) // WINDOW[0], (columns - shift[1]) // WINDOW[1]])
    together = (window[:, :, None] == window[:, None]).all(0)
    down, right = rows[:, None] - rows, columns[:, None] - columns
    near = (down.abs() < WINDOW[0]) & (right.abs() < WINDOW[1])
    step = (down + WINDOW[0] - 1) * (2 * WINDOW[1] - 1) + right + WINDOW[1] - 1
    bias = mix.positions.bias_table()[:, torch.where(near, step, 0)]
    q, k, v = mix.project(x.flatten(1, 2))
    scores = q @ k.mT * (1.0 if isinstance(mix, CosineWindowAttention) else q.shape[-1] ** -0.5) + bias
    weights = scores.masked_fill(~together, float("-inf")).softmax(-1)
    return mix.join(weights @ v).unflatten(1, (y, x_)), weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shifted", [False, True])
def test_is_attention_on_the_whole_grid_where_other_windows_are_masked(kind, size, shifted):
    mix = mixer(kind, shifted)
    x = torch.randn(2, *size, WIDTH, requires_grad=True)
    found, (wanted, weights) = mix(x), everywhere(mix, x, shifted)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    pull = torch.randn_like(found)
    of = [x, *mix.parameters()]
    for mine, theirs in zip(
        torch.autograd.grad((found * pull).sum(), of), torch.autograd.grad((wanted * pull).sum(), of), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    with torch.no_grad(), watch(mix) as seen:
        mix(x)
    (trace,) = seen.values()
    torch.testing.assert_close(trace.operator(), weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("padding", ["mask", "attend", "shifted"])
def test_operator_times_values_is_what_the_layer_mixes(kind, size, shifted, padding):
    mix, x = mixer(kind, shifted, padding=padding), torch.randn(2, *size, WIDTH)
    with torch.no_grad(), watch(mix) as seen:
        out = mix(x)
        _, _, v = mix.project(x.flatten(1, 2))
        _, _, nothing = mix.project(torch.zeros(1, 1, WIDTH))  # the value of padding
    (trace,) = seen.values()
    operator = trace.operator()
    assert trace.exact
    missing = 1 - operator.sum(-1, keepdim=True)
    whole = all(s % w == 0 for s, w in zip(size, WINDOW, strict=True))
    assert (missing.abs().max() < 1e-12) == (padding == "mask" or whole)
    mixed = operator @ v + missing * nothing
    torch.testing.assert_close(mix.join(mixed).unflatten(1, size), out, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", ["mask", "attend", "shifted"])
@pytest.mark.parametrize("size", [(8, 12), (7, 10), (3, 5)])
@pytest.mark.parametrize("shifted", [False, True])
def test_read_in_their_places_windows_give_the_same(kind, padding, size, shifted):
    mix, x = mixer(kind, shifted, padding=padding), torch.randn(2, *size, WIDTH, requires_grad=True)
    found, wanted = mix.fused(x, backend="eager"), mix(x)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    of = [x, *mix.parameters()]
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), of), torch.autograd.grad(wanted.square().sum(), of), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shifted", [False, True])
def test_watching_changes_nothing_to_the_bit(kind, shifted):
    mix, x = mixer(kind, shifted), torch.randn(2, 7, 10, WIDTH)
    plain = mix(x)
    with watch(mix):
        assert torch.equal(mix(x), plain)


def test_a_side_no_longer_than_a_window_is_not_shifted():
    mix = mixer(WindowAttention, shifted=True)
    assert mix.shift(torch.zeros(1, 9, 7, WIDTH)) == (2, 1)
    assert mix.shift(torch.zeros(1, 4, 7, WIDTH)) == (0, 1)
    assert mix.shift(torch.zeros(1, 9, 2, WIDTH)) == (2, 0)


def test_a_cosine_has_a_bound():
    mix, x = mixer(CosineWindowAttention), 1e3 * torch.randn(1, 5, WIDTH)
    with torch.no_grad():
        mix.project.log_scale.fill_(99.0)
        q, k, _ = mix.project(x)
    assert (q @ k.mT).abs().max() <= 100 + 1e-9


def test_attention_of_other_kinds_and_dropout_are_taken():
    mix = mixer(WindowAttention, attention="softmax(backend='eager')", dropout=0.5)
    x = torch.randn(1, 8, 6, WIDTH)
    assert torch.equal(mix(x), mix(x))
    mix.train()
    assert not torch.equal(mix(x), mix(x))


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(RegardError, match="width 12 is not divisible by 5 heads"):
        WindowAttention(12, 5, TableWindowBias(5, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_stands_for_nothing_but_what_it_computes(kind):
    assert mixer(kind).can_fuse()
    assert mixer(kind, dropout=0.1).can_fuse()  # while it does not train
    assert not mixer(kind, dropout=0.1).train().can_fuse()
    assert not mixer(kind, attention="softmax(scale=0.3)").can_fuse()
    assert not mixer(kind, attention="softmax(backend='eager')").can_fuse()
    mix = mixer(kind)
    with watch(mix, gradients=True):  # which needs the mechanism's own output
        assert not mix.can_fuse()
        mix(torch.randn(1, 4, 3, WIDTH))
    handle = mix.attend.register_forward_pre_hook(lambda *_: None)  # somebody else's, who may change the inputs
    assert not mix.can_fuse()
    handle.remove()
    mix.attend.register_forward_hook(lambda *_: None)
    assert not mix.can_fuse()


@pytest.mark.parametrize("size", [(8, 12), (7, 10)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_stays_in_use_while_watched_and_the_maps_are_the_same(kind, size, monkeypatch):
    mix, x = mixer(kind, shifted=True), torch.randn(2, *size, WIDTH)
    with watch(mix) as expected:
        mix(x)
    calls = []

    def kernel(self, x):  # its reference
        calls.append(x)
        return fused(self, x, "eager")

    fused = WindowAttention.fused
    monkeypatch.setattr(WindowAttention, "_uses_kernel", lambda self, x: self.can_fuse())
    monkeypatch.setattr(WindowAttention, "fused", kernel)
    unwatched = mix(x)
    with watch(mix) as seen:
        assert torch.equal(mix(x), unwatched)
    assert len(calls) == 2
    (name,) = expected
    torch.testing.assert_close(seen[name].weights, expected[name].weights)
    torch.testing.assert_close(seen[name].operator(), expected[name].operator())
