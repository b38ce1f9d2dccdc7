"""ByteNet: places over places, the way it unfolds, how far it sees; and it learns."""

import pytest
import torch
from torch import nn

import regard
from regard.core.errors import BadInput, RegardError, UnknownName

from .brute_force_search import EOS, ragged, targets
from .small_convolutional import small


def test_decoder_position_t_reads_encoder_position_t():
    """With a kernel of 1 the only way from the source to the target is up: place t is heard at t and nowhere else."""
    model = small("bytenet", kernel=1)
    source, target = torch.tensor([[4, 5, 6, 7]]), targets(1, 8)
    before = model(source, target)
    after = model(torch.tensor([[4, 9, 6, 7]]), target)
    changed = (before - after).abs().amax((0, 2)) > 1e-9
    assert changed.tolist() == [False, True, False, False, False, False, False, False]


def test_a_target_may_be_longer_than_the_unfolded_source():
    """A source of 5 takes 6 places; beyond them the decoder hears only what it wrote before."""
    model = small("bytenet", kernel=1, length_ratio=1.2)
    source, target = torch.tensor([[4, 5, 6, 7, 8]]), targets(1, 10)
    assert model.encode(source).shape[1] == 6
    logits = model(source, target)
    longer = torch.full((1, 10), 5)
    alone = model.decoder(model.decoder_inputs(target, torch.zeros(1, 10, 6, dtype=torch.float64)))
    torch.testing.assert_close(logits[:, 6:], model.logits(alone)[:, 6:])
    assert (model(longer, target)[:, 6:] - logits[:, 6:]).abs().amax() > 1e-6  # there, it still has places


def test_positions_beyond_the_source_depend_on_it():
    model = small("bytenet", length_ratio=1.5)
    source = torch.tensor([[4, 5, 6, 7]])
    places = model.encode(source)
    assert places.shape[1] == 6
    moved = (model.encode(torch.tensor([[4, 5, 6, 9]])) - places).abs().amax((0, 2))
    assert moved[4:].min() > 1e-9


def test_receptive_field():
    model = small("bytenet", decoder_layers=4, dilations=(1, 2, 4))
    assert model.decoder.receptive_field == 1 + 2 * (1 + 2 + 4 + 1)
    x = torch.randn(1, 30, 12, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.decoder(x)[0, -1].sum(), x)
    assert gradient[0].abs().amax(1).nonzero()[:, 0].min() == 30 - model.decoder.receptive_field
    with torch.device("meta"):
        paper = regard.build("bytenet", size="base", vocab=300)
    assert [block.conv.dilation for block in paper.encoder.blocks] == [1, 2, 4, 8, 16] * 6
    assert paper.decoder.blocks[0].conv.map.out_features == 800


def test_number_of_parameters_of_the_papers_blocks():
    with torch.device("meta"):
        models = {name: regard.build("bytenet", vocab=300, block=name) for name in ("relu", "multiplicative")}
    d, k = 800, 3
    ends = 2 * 2 * d + (2 * d * d + d) + (d * 2 * d + 2 * d)  # the first norm, the ways down and up
    relu = ends + 2 * 2 * d + k * d * d + d
    multiplicative = ends + 2 * 4 * d + 4 * (k * d * d + d)
    for name, each in (("relu", relu), ("multiplicative", multiplicative)):
        assert sum(p.numel() for p in models[name].encoder.parameters()) == 30 * each


def test_mismatched_settings_raise():
    with pytest.raises(BadInput, match="width must be even"):
        regard.build("bytenet", vocab=11, width=13)
    with pytest.raises(UnknownName, match="did you mean 'relu'"):
        regard.build("bytenet", size="tiny", vocab=11, block="rely")
    with pytest.raises(RegardError, match="nothing attends in this ByteNet"), regard.watch(small("bytenet")):
        pass


def test_it_learns_to_copy_and_to_end(unchecked):
    torch.manual_seed(0)
    model = regard.build("bytenet", size="tiny", vocab=14, width=48, encoder_layers=3, decoder_layers=3, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    def batch(rows=64):
        source, lengths = ragged(rows, longest=8, vocab=14, seed=int(torch.randint(1 << 30, ())))
        wanted = torch.cat([source, torch.zeros(rows, 1, dtype=torch.long)], 1).scatter_(1, lengths[:, None], EOS)
        target = torch.cat([torch.ones(rows, 1, dtype=torch.long), wanted[:, :-1]], 1)
        return source, lengths, target, wanted.masked_fill(torch.arange(wanted.shape[1]) > lengths[:, None], -100)

    for _ in range(120):
        source, lengths, target, wanted = batch()
        loss = nn.functional.cross_entropy(model(source, target, lengths).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, lengths, target, wanted = batch()
    right = (model.eval()(source, target, lengths).argmax(-1) == wanted)[wanted >= 0]
    assert right.double().mean() > 0.9
