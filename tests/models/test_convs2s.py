"""ConvS2S: the paper written out, its beginnings and gradients, its maps; and it learns."""

import pytest
import torch
from torch import nn

import regard
from regard.attention.capture.watch import watch
from regard.blocks.convolution import WeightNormLinear
from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.models.convs2s import Config, ConvS2S

from .brute_force_search import EOS, ragged, targets
from .small_convolutional import small


def applied(layer):
    """Weight norm as in its paper: g v / |v|."""
    return torch.stack([g * v / v.norm() for g, v in zip(layer.gain, layer.direction, strict=True)])


def linear(layer, x):
    return x @ applied(layer).T + layer.bias


def gated(conv, x, before, after):
    """A gated convolution, place by place; x: N C."""
    zeros = x.new_zeros(1, x.shape[1])
    padded = torch.cat([zeros.repeat(before, 1), x, zeros.repeat(after, 1)])
    rows = []
    for n in range(len(x)):
        a, b = linear(conv.map, padded[n : n + conv.kernel].flatten()).chunk(2)
        rows.append(a * b.sigmoid())
    return torch.stack(rows)


def by_hand(model, source, target):
    """One pair, as the paper's equations say it; returns the logits T V."""
    half = 0.5**0.5
    e = model.embed(source) + model.positions.table.weight[: len(source)]
    z = linear(model.encoder.input_proj, e)
    for block in model.encoder.blocks:
        around = z if block.skip is None else linear(block.skip, z)
        k = block.conv.kernel
        z = (gated(block.conv, z, k // 2, k - 1 - k // 2) + around) * half
    z = linear(model.encoder.output_proj, z)
    values = (z + e) * half
    g = model.embed_target(target) + model.target_positions.table.weight[: len(target)]
    x = linear(model.decoder.input_proj, g)
    for block in model.decoder.blocks:
        around = x if block.skip is None else linear(block.skip, x)
        h = gated(block.conv, x, block.conv.kernel - 1, 0)
        rows = []
        for n in range(len(target)):
            d = (linear(block.cross.query, h[n]) + g[n]) * half
            c = (z @ d).softmax(0) @ values * len(source) * (1 / len(source)) ** 0.5
            rows.append((linear(block.cross.output, c) + h[n]) * half)
        x = (torch.stack(rows) + around) * half
    return linear(model.head, linear(model.decoder.output_proj, x))


def test_forward_equals_the_formulas_of_the_paper():
    model, (source, lengths), target = small("convs2s"), ragged(), targets()
    found = model(source, target, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row], by_hand(model, source[row, :length], target[row]))


def test_the_encoders_gradient_is_divided_by_the_number_of_attentions(monkeypatch):
    model, (source, lengths), target = small("convs2s"), ragged(), targets()

    def gradients():
        model.zero_grad()
        model(source, target, lengths).square().sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    scaled = gradients()
    monkeypatch.setattr("regard.models.convs2s.ScaleGradient.apply", lambda x, by: x)
    plain = gradients()
    for name in scaled:
        if name.startswith("encoder."):
            torch.testing.assert_close(scaled[name] * 4, plain[name])  # four layers look at the source
        elif name.startswith(("decoder.", "head", "embed_target", "target_positions")):
            torch.testing.assert_close(scaled[name], plain[name])
    # what the values take of the embeddings themselves is not scaled
    assert not torch.allclose(scaled["embed.weight"] * 4, plain["embed.weight"])


def test_watch_captures_every_layer():
    model, (source, lengths), target = small("convs2s"), ragged(), targets()
    unseen = model(source, target, lengths)
    with watch(model) as seen:
        logits = model(source, target, lengths)
    assert torch.equal(logits, unseen)
    assert list(seen) == [f"decoder.blocks.{layer}.cross" for layer in range(4)]
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    for trace in seen.traces("cross"):
        assert trace.weights.shape == (6, 1, 7, source.shape[1])
        torch.testing.assert_close(trace.weights.sum(-1), torch.ones(6, 1, 7, dtype=torch.float64))
        assert (trace.weights * padding[:, None, None]).abs().max() == 0
    maps = [trace.weights for trace in seen.traces("cross")]
    assert (maps[0] - maps[1]).abs().max() > 1e-3  # every layer looks for itself
    first, state = model.start(source, lengths, capacity=4)
    with watch(model) as stepped:
        model.step(first, state)
    torch.testing.assert_close(stepped["decoder.blocks.3.cross"].weights, maps[3][:, :, :1])


def test_initial_weights_preserve_the_variance():
    model = ConvS2S(Config(vocab=100, width=128, hidden=128, encoder_layers=8, decoder_layers=1, dropout=0.25))
    model.requires_grad_(False)
    assert model.embed.weight[1:].std() == pytest.approx(0.1, rel=0.05)
    assert model.positions.table.weight.std() == pytest.approx(0.1, rel=0.05)
    block = model.encoder.blocks[3]
    assert block.conv.map.direction.std() == pytest.approx((4 * 0.75 / (3 * 128)) ** 0.5, rel=0.02)
    assert model.encoder.output_proj.direction.std() == pytest.approx((1 / 128) ** 0.5, rel=0.02)
    model.train()  # dropout is on: the weights are smaller by as much as it makes its input larger
    x, spread = 0.14 * torch.randn(16, 50, 128), []  # a word and its position; the gate's formula is for small numbers
    with torch.no_grad():
        for block in model.encoder.blocks:
            x = block(x)
            spread.append(float(x.std()))
    assert 0.1 < min(spread) <= max(spread) < 0.2


def test_number_of_parameters_of_the_papers_size():
    with torch.device("meta"):
        model, large = ConvS2S(Config(vocab=40_000)), regard.build("convs2s", size="large", vocab=10)
    count = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    each = 2 * 512 * (3 * 512 + 2)  # a convolution to twice the width: weights, lengths, biases
    ends = 2 * (512 * 512 + 2 * 512)
    assert count["embed"] == count["embed_target"] == 40_000 * 512
    assert count["encoder"] == 20 * each + ends
    assert count["decoder"] == 20 * (each + 2 * (512 * 512 + 2 * 512)) + ends
    assert count["head"] == 40_000 * (512 + 2)
    assert [(b.conv.map.bias.numel() // 2, b.conv.kernel) for b in large.encoder.blocks] == [
        *[(512, 3)] * 9,
        *[(1024, 3)] * 4,
        *[(2048, 1)] * 2,
    ]


def test_a_tied_head_shares_the_embedding_without_weight_norm():
    model = regard.build("convs2s", size="tiny", vocab=50)
    assert model.head.weight is model.embed.weight is model.embed_target.weight
    assert not isinstance(model.head, WeightNormLinear)
    assert isinstance(regard.build("convs2s", size="tiny", vocab=50, tied=False).head, WeightNormLinear)


def test_mismatched_settings_raise():
    with pytest.raises(Unsupported, match="needs positions that are added to tokens"):
        regard.build("convs2s", size="tiny", vocab=11, positions="rotary")
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        regard.build("convs2s", size="tiny", vocab=11, attention="sofmax")
    for settings in ({"kernel": 0}, {"extra_layers": ((8, 0),)}):
        with pytest.raises(BadInput, match=r"(kernel|extra_layers) must be at least 1, got "):
            regard.build("convs2s", size="tiny", vocab=11, **settings)
    model = regard.build("convs2s", size="tiny", vocab=11, length=8)
    with pytest.raises(BadInput, match="9 positions are needed but 8 were learned"):
        model(torch.full((1, 9), 4), torch.ones(1, 2, dtype=torch.long))


def backwards(rows=64, longest=6, vocab=14):
    """Sources, and the same words the other way round."""
    lengths = torch.randint(3, longest + 1, (rows,))
    words, place = torch.randint(3, vocab, (rows, longest)), torch.arange(longest)[None]
    turned = words.gather(1, torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place))
    wanted = torch.cat([turned, torch.zeros(rows, 1, dtype=torch.long)], 1).scatter_(1, lengths[:, None], EOS)
    target = torch.cat([torch.ones(rows, 1, dtype=torch.long), wanted[:, :-1]], 1)
    source = words.masked_fill(place >= lengths[:, None], 0)
    return source, lengths, target, wanted.masked_fill(torch.arange(longest + 1) > lengths[:, None], -100)


@pytest.mark.long
def test_it_learns_to_reverse_with_the_right_alignment(unchecked):
    model = regard.build("convs2s", size="tiny", vocab=14, width=48, hidden=48, decoder_layers=2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(250):
        source, lengths, target, wanted = backwards()
        loss = nn.functional.cross_entropy(model(source, target, lengths).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    model.eval()
    source, lengths, target, wanted = backwards()
    with torch.no_grad(), watch(model) as seen:
        right = (model(source, target, lengths).argmax(-1) == wanted)[wanted >= 0]
    assert right.double().mean() > 0.9
    # the word written at t is word length - 1 - t of the source: there, of all places, some layer looks
    place = (lengths[:, None] - 1 - torch.arange(6)).clamp(min=0)
    real = torch.arange(6) < lengths[:, None]
    looked = [t.weights[:, 0, :6].gather(2, place[..., None])[..., 0][real].mean() for t in seen.traces("cross")]
    assert max(looked) > 0.4
