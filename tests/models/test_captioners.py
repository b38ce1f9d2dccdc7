"""Captioners: their equations written out, the penalty, the frozen encoder, and one word at a time."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.models.show_attend_and_tell import doubly_stochastic_penalty

NAMES = ("show_and_tell", "show_attend_and_tell")
ALL = (*NAMES, "caption_transformer")


def tiny(name, **settings):
    torch.manual_seed(0)
    return regard.build(name, size="tiny", vocab=11, **settings).double().eval()


def given(model, rows=2):
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(rows, 6, model.encoder.width, generator=generator, dtype=torch.float64)
    return vectors, torch.randint(3, 11, (rows, 5), generator=generator)


def test_show_attend_and_tell_is_the_papers_equations():
    model = tiny("show_attend_and_tell")
    (a, words), d = given(model), model.decoder
    cell, f_att = d.cells.cells[0], d.aligner
    L_h, L_z = d.output.maps
    h, c = torch.tanh(d.start_from.map(a.mean(1))).chunk(2, -1)
    found = []
    for t in range(words.shape[1]):
        y = d.embed(words[:, t])
        alpha = f_att.score(torch.tanh(f_att.query(h)[:, None] + f_att.memory(a)))[..., 0].softmax(-1)
        z = torch.sigmoid(d.context_gate(h)) * torch.einsum("bm,bmd->bd", alpha, a)
        i, f, g, o = (cell.input_gates(y) + cell.context_gates(z) + cell.state(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(d.output.head(y + L_h(h) + L_z(z)))
    torch.testing.assert_close(model(a, words), torch.stack(found, 1), rtol=1e-10, atol=1e-10)


def test_show_and_tell_reads_the_picture_before_the_first_word():
    model = tiny("show_and_tell")
    a, words = given(model)
    inputs = torch.cat([model.project(a.mean(1))[:, None], model.embed(words)], 1)
    states, _ = model.network.network(inputs)
    torch.testing.assert_close(model(a, words), model.head(states[:, 1:]), rtol=1e-10, atol=1e-10)


def test_the_penalty_counts_the_real_words_of_each_caption():
    weights = torch.rand(2, 3, 4, dtype=torch.float64).softmax(-1)
    real = torch.tensor([[True, True, True], [True, False, False]])
    first = ((1 - weights[0].sum(0)) ** 2).sum()
    second = ((1 - weights[1, 0]) ** 2).sum()
    torch.testing.assert_close(doubly_stochastic_penalty(weights, real), (first + second) / 4)
    even = torch.full((1, 4, 4), 0.25)
    assert doubly_stochastic_penalty(even, torch.ones(1, 4, dtype=torch.bool)) == 0
    model = tiny("show_attend_and_tell")
    pass_state = PassState()
    a, words = given(model)
    model(a, words, torch.tensor([5, 2]), pass_state=pass_state)
    seen = torch.cat(pass_state.collect("alignment"), 1)
    real = torch.arange(5) < torch.tensor([[5], [2]])
    (loss,) = pass_state.losses("doubly_stochastic")
    torch.testing.assert_close(loss, doubly_stochastic_penalty(seen, real))


def test_a_frozen_encoder_keeps_its_weights_and_statistics():
    for name in ALL:
        model = tiny(name, frozen=True).train()
        before = {key: x.clone() for key, x in model.encoder.state_dict().items()}
        images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        model(images, torch.randint(3, 11, (2, 4))).sum().backward()
        assert all(p.grad is None for p in model.encoder.parameters())
        assert all(torch.equal(x, before[key]) for key, x in model.encoder.state_dict().items())
        stored = model.encoder(images)  # computed before, or now: the same logits
        words = torch.randint(3, 11, (2, 4))
        torch.testing.assert_close(model.eval()(stored, words), model(images, words))


def test_word_by_word_gives_the_logits_of_the_whole_caption():
    for name in NAMES:
        model = tiny(name)
        a, words = given(model)
        state, found = model.initial_state(a), []
        for t in range(words.shape[1]):
            logits, state = model.step(words[:, t : t + 1], state)
            found.append(logits)
        torch.testing.assert_close(torch.cat(found, 1), model(a, words), rtol=1e-9, atol=1e-9)


def test_watch_sees_a_row_of_weights_for_every_word():
    model = tiny("show_attend_and_tell")
    a, words = given(model)
    with watch(model) as seen:
        model(a, words)
    weights = torch.cat([trace.weights for trace in seen.traces("align")], -2).flatten(0, -3)
    assert weights.shape[-1] == 6
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_the_soft_context_is_the_expectation_of_the_hard_one():
    """One step with hard attention, averaged over all places by their probability, sees the soft context."""
    model = tiny("show_attend_and_tell")
    a, _ = given(model)
    d = model.decoder
    state = model.initial_state(a)
    gates = d.cells.input_gates(d.embed(torch.ones(2, 1, dtype=torch.long)))
    _, soft, weights, _ = d.attend(gates, state.hidden, state.memory, state.aligner_state)
    gate = torch.sigmoid(d.context_gate(state.hidden[-1][0]))
    hard = [gate * F.one_hot(torch.full((2, 1), m), 6).double() @ a for m in range(6)]
    expected = sum(weights[..., m : m + 1] * one for m, one in enumerate(hard))
    torch.testing.assert_close(soft, expected)


def test_a_transformer_writes_word_by_word_what_it_reads_at_once():
    model = tiny("caption_transformer")
    side = model.config.encoder.image_size
    images, words = torch.randn(2, 3, side, side, dtype=torch.float64), torch.randint(3, 11, (2, 5))
    _, state = model.start(images, capacity=6)
    found = []
    for t in range(words.shape[1]):
        logits, state = model.step(words[:, t : t + 1], state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), model(images, words), rtol=1e-9, atol=1e-9)


def test_a_transformer_tells_left_from_right():
    """The parts of a picture have places: mirrored vectors give other words, which a mean would not."""
    model = tiny("caption_transformer")
    rows, columns = model.grid
    vectors = torch.randn(1, rows, columns, model.encoder.width, dtype=torch.float64)
    words = torch.randint(3, 11, (1, 4))
    one, other = (model(x.flatten(1, 2), words) for x in (vectors, vectors.flip(2)))
    assert not torch.allclose(one, other) or columns == 1
    with pytest.raises(BadInput, match=f"grid of {rows} x {columns}"):
        model(torch.zeros(1, rows * columns + 1, model.encoder.width, dtype=torch.float64), words)


def test_encoders_are_convolutions_from_scratch_too():
    from regard.models.show_attend_and_tell import small_cnn

    words = torch.randint(3, 11, (2, 4))
    for layers in (0, 1):
        encoder = small_cnn(24, 32, layers=layers, ffn=32)
        for name in ALL:
            model = tiny(name, encoder=encoder)
            assert model.encoder.grid_size(32, 40) == (4, 5)
            images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
            torch.testing.assert_close(model(images, words)[:1], model(images[:1], words[:1]))  # no batch norm
            assert model.encoder(images).shape == (2, 16, 24)
    with pytest.raises(BadInput, match="num_prefix_tokens=0"):
        tiny("show_attend_and_tell", encoder=regard.models.vit.Config(num_classes=0))


def test_vectors_of_another_width_are_refused():
    for name in ALL:
        model = tiny(name)
        for shape in ((2, 6, model.encoder.width + 1), (2, 0, model.encoder.width)):
            with pytest.raises(BadInput, match="annotation vectors"):
                model(torch.zeros(shape, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.long))
