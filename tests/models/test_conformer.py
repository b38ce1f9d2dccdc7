import pytest
import torch
from torch import nn

import regard
from regard.attention.capture.watch import watch
from regard.blocks.conformer import ConformerEncoder, MaskedBatchNorm
from regard.core.errors import BadInput, RegardError
from regard.models.conformer import Conformer
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.bias.transformer_xl import TransformerXLPositions, distance_vectors

FRAMES = torch.randn(3, 43, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([43, 9, 22])
SIZES = {"input_dim": 5, "channels": 6, "width": 8, "heads": 2, "layers": 2, "kernel": 5}


def built(name="conformer", **settings):
    torch.manual_seed(1)
    made = regard.build(name, vocab=7, **SIZES | settings).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


# -- positions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (4, 4), (3, 7)])
def test_scores_have_the_four_terms_of_transformer_xl(n, m):
    torch.manual_seed(0)
    positions, table = TransformerXLPositions(6, 2, 3).double(), SinusoidalPositions(6)
    for parameter in positions.parameters():
        nn.init.normal_(parameter)
    q, k = torch.randn(2, 2, n, 3, dtype=torch.float64), torch.randn(2, 2, m, 3, dtype=torch.float64)
    distances = distance_vectors(table, n, m, q.device, q.dtype)
    moved, bias = positions.bias(q, distances, m, 0.7)
    scores = 0.7 * moved @ k.mT + bias.dense()
    add = bias.score_mod()
    for b, h, row, column in [(0, 0, 0, 0), (1, 1, n - 1, m - 1), (0, 1, n - 1, 0), (1, 0, 0, m - 1)]:
        at = torch.tensor([[m - n + row - column]])
        r = positions.distance(table.vectors(at, torch.float64))[0, 0].unflatten(-1, (2, 3))[h]
        u, v = positions.content_bias[h], positions.position_bias[h]
        expected = q[b, h, row] @ k[b, h, column] + q[b, h, row] @ r + u @ k[b, h, column] + v @ r
        torch.testing.assert_close(scores[b, h, row, column], 0.7 * expected)
        where = [torch.tensor(each) for each in (b, h, row, column)]
        torch.testing.assert_close(add(torch.tensor(0.0), *where), bias.dense()[b, h, row, column])
    torch.testing.assert_close(bias.dense(slice(n - 1, n)), bias.dense()[:, :, n - 1 :])


# -- padding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"subsampling": "depthwise"}, {"subsampling": "conv1d", "conv_norm": "layer"},
    {"subsampling_layers": 0}, {"subsampling_layers": 3}, {"chunk_size": 2, "left_chunks": 1}], ids=str)  # fmt: skip
def test_padding_and_company_change_nothing(settings):
    model = built(**settings)
    with torch.no_grad():
        logits, lengths = model(FRAMES, LENGTHS)
        for row, length in enumerate(LENGTHS.tolist()):
            alone, one = model(FRAMES[row : row + 1, :length])
            assert one[0] == lengths[row] == alone.shape[1]
            torch.testing.assert_close(logits[row, : lengths[row]], alone[0], rtol=1e-9, atol=1e-9)


def test_batch_norm_learns_from_real_frames_alone():
    torch.manual_seed(0)
    own, plain = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    x, real = torch.randn(3, 6, 4, dtype=torch.float64), torch.arange(6) < torch.tensor([6, 2, 3])[:, None]
    x.requires_grad_()
    found = own(x, real[..., None])
    wanted = plain(x[real])
    torch.testing.assert_close(found[real], wanted)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(own, name), getattr(plain, name))
    gradients = [torch.autograd.grad((y**3).sum(), x)[0] for y in (found[real], wanted)]
    torch.testing.assert_close(*gradients)
    own.eval(), plain.eval()
    torch.testing.assert_close(own(x, real[..., None])[real], plain(x[real]))


def test_a_gradient_of_training_does_not_see_padding():
    model = built(dropout=0.0).train()
    gradients = []
    for noise in (0.0, 9.0):
        frames = FRAMES + noise * (torch.arange(43)[:, None] >= LENGTHS[:, None, None])
        model.zero_grad()
        logits, lengths = model(frames, LENGTHS)
        (logits * (torch.arange(logits.shape[1]) < lengths[:, None])[..., None]).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# -- streaming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"chunk_size": 3}, {"chunk_size": 2, "left_chunks": 1},
    {"chunk_size": 4, "left_chunks": 0, "subsampling": "conv1d", "conv_norm": "layer"},
    {"chunk_size": 1, "left_chunks": 3, "subsampling": "depthwise", "subsampling_layers": 3}], ids=str)  # fmt: skip
@pytest.mark.parametrize("length", [1, 24, 43])
def test_chunks_one_after_another_equal_one_forward(settings, length):
    model = built(**settings)
    frames = FRAMES[:, :length]
    state, parts = model.start_stream(3), []
    with torch.no_grad():
        for chunk in frames.split(settings["chunk_size"] * 2**model.config.subsampling_layers, 1):
            logits, state = model.stream(chunk, state)
            parts.append(logits)
        torch.testing.assert_close(torch.cat(parts, 1), model(frames)[0], rtol=1e-9, atol=1e-9)


def test_no_chunk_sees_a_later_frame():
    model = built(chunk_size=2)  # 8 frames
    with torch.no_grad():
        before = model(FRAMES)[0]
        frames = FRAMES.clone()
        frames[:, 16:] += 1.0
        after = model(frames)[0]
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=1e-12, atol=1e-12)
    assert ((before - after)[:, 4].abs() > 1e-6).all()


def test_a_stream_says_what_it_takes():
    model = built(chunk_size=2)
    state = model.start_stream(1)
    with torch.no_grad():
        with pytest.raises(BadInput, match="a chunk has 8 frames, the last one may have fewer; got 9 frames"):
            model.stream(FRAMES[:1, :9], state)
        _, state = model.stream(FRAMES[:1, :5], state)
        with pytest.raises(BadInput, match="the recording has ended"):
            model.stream(FRAMES[:1, :8], state)
    with pytest.raises(BadInput, match="cannot stream; build it with chunk_size"):
        built().start_stream()


# -- what it is --------------------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_paper_less_its_transducer():
    with torch.device("meta"):
        counts = {
            size: sum(p.numel() for p in regard.build("conformer", size, vocab=1000).parameters()) for size in "sml"
        }
    assert {size: round(count / 1e5) / 10 for size, count in counts.items()} == {"s": 8.9, "m": 27.6, "l": 115.6}


def test_watch_sees_every_layer_over_the_frames_it_was_made_of():
    model = built()
    with torch.no_grad(), watch(model) as seen:
        model(FRAMES, LENGTHS)
    assert list(seen) == ["encoder.blocks.0.mix", "encoder.blocks.1.mix"]
    trace = seen["encoder.blocks.1.mix"]
    assert trace.weights.shape == (3, 2, 11, 11)
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(3, 2, 11, dtype=torch.float64))
    assert not trace.weights[1, :, :, 3:].any()  # 9 frames are 3
    moved, first, _ = seen.last_pass()
    assert (moved.kind, moved.exact, first.name) == ("move", False, "encoder.blocks.0.mix")
    assert moved.geometry.keys.grid == (43,)
    assert moved.geometry.keys.cells[0, 3, 0].tolist() == [9, 10, 11, 12, 13, 14, 15]


def test_the_receptive_field_of_a_subsampled_frame_is_what_reaches_it():
    model = built(subsampling_layers=2)
    frames = FRAMES[:1].clone().requires_grad_()
    model.subsample(frames, torch.tensor([43]))[0, 4].sum().backward()
    reached = frames.grad[0].abs().sum(1).nonzero()[:, 0].tolist()
    cells = model.subsample.slots(frames).cells[0, 0, 4].tolist()
    assert set(reached) <= set(cells)
    assert (min(reached), max(reached)) == (min(cells), max(cells))


def test_it_is_a_part_of_the_models_that_were_recurrent():
    spec = "conformer(heads=2, kernel=5)"
    for name, sizes in (("ctc", {"width": 6, "hidden": 8, "layers": 2}),
                        ("attention_asr", {"conv_width": 6, "width": 6, "hidden": 8, "layers": 2})):  # fmt: skip
        model = regard.build(name, vocab=7, input_dim=5, encoder=spec, **sizes).double().eval()
        assert isinstance(model.encoder.rnn, ConformerEncoder)
        target = (torch.randint(3, 7, (3, 4)),) if name == "attention_asr" else ()
        with torch.no_grad():
            both = model(FRAMES, *target, LENGTHS), model(FRAMES[1:2, :9], *(t[1:2] for t in target))
            rows = [found[0] if isinstance(found, tuple) else found for found in both]
            n = rows[1].shape[1]
            torch.testing.assert_close(rows[0][1, :n], rows[1][0], rtol=1e-9, atol=1e-9)


def test_impossible_settings_are_refused():
    for settings, problem in (
        ({"kernel": 4}, "odd number of frames, got 4"),
        ({"heads": 3}, "not divisible by 3 heads"),
        ({"left_chunks": 2}, "set chunk_size too"),
        ({"attention": "linear"}, "bias"),
    ):
        with pytest.raises(RegardError, match=problem):
            built(**settings)(FRAMES)


def test_export_and_reload_are_equal(tmp_path):
    model = built(chunk_size=2)
    regard.save(model, tmp_path / "m", dtype="float32")
    found = regard.load(tmp_path / "m")
    assert isinstance(found, Conformer)
    assert found.config == model.config
