"""ELMo: each direction knows its side of the sentence only, and a word is its letters."""

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import RegardError
from regard.models.elmo import BEGIN, BOS, END, PAD, Config, ELMo, ScalarMix, words_to_char_ids

CONFIG = Config(
    vocab=19, width=6, hidden=10, char_dim=4, filters=(3, 3, 5), highway_layers=2, max_word_length=12, dropout=0.0
)
WORDS = ["<s>", "</s>", "a", "dog", "runs", "unpronounceable", "naïve"]
ROWS = torch.tensor([[0, 3, 4, 2, 1], [0, 5, 1, 0, 0], [0, 6, 3, 1, 0]])
LENGTHS = torch.tensor([5, 3, 4])


@pytest.fixture
def model(double):
    torch.manual_seed(3)
    made = ELMo(CONFIG).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return made


def probe(model, direction, layer):
    """The gradient of one place's vector by every place's word: N N, rows are the places asked."""
    x = model.char_cnn(words_to_char_ids(WORDS, CONFIG))[ROWS[:1]].detach().requires_grad_()
    towers = model._run_layers(model.forward_lstms, x), model._run_layers(model.backward_lstms, x.flip(1)).flip(2)
    out = towers[direction][layer]
    return torch.stack(
        [torch.autograd.grad(out[0, n].sum(), x, retain_graph=True)[0][0].abs().sum(-1) for n in range(5)]
    )


@pytest.mark.parametrize("layer", [1, 2])
def test_forward_half_ignores_the_future_and_backward_half_the_past(model, layer):
    forth, back = probe(model, 0, layer), probe(model, 1, layer)
    assert torch.equal(forth.triu(1), torch.zeros_like(forth))
    assert (forth.tril() > 0).sum() == 15
    assert torch.equal(back.tril(-1), torch.zeros_like(back))
    assert (back.triu() > 0).sum() == 15


def test_a_later_word_changes_only_the_backward_half_before_it(model):
    other = ROWS.clone()
    other[0, 3] = 6
    a, b = (
        model(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS),
        model(words_to_char_ids(WORDS, CONFIG), other, LENGTHS),
    )
    assert torch.equal(a[:, 0, :3, :6], b[:, 0, :3, :6])
    assert torch.equal(a[:, 0, 4:, 6:], b[:, 0, 4:, 6:])
    assert (a[1:, 0, :3, 6:] != b[1:, 0, :3, 6:]).any(-1).all()
    assert torch.equal(a[0, 0, 4], b[0, 0, 4])  # layer 0 is the word alone


def test_batch_equals_singles_and_padding_has_no_influence(model):
    whole = model(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS)
    assert whole.shape == (3, 3, 5, 12)
    for i, n in enumerate(LENGTHS.tolist()):
        kinds, at = ROWS[i, :n].unique(return_inverse=True)  # spelled with other words: other padding of letters
        alone = model(words_to_char_ids([WORDS[k] for k in kinds], CONFIG), at[None])
        torch.testing.assert_close(whole[:, i, :n], alone[:, 0])
        assert not whole[:, i, n:].any()
    other = ROWS.clone()
    other[1, 3:] = 4
    assert torch.equal(model(words_to_char_ids(WORDS, CONFIG), other, LENGTHS), whole)


def test_layers_equal_torch_lstms_with_residual_connections(model):
    x = model.char_cnn(words_to_char_ids(WORDS, CONFIG))[ROWS[:1]]
    found = model(words_to_char_ids(WORDS, CONFIG), ROWS[:1])
    one = plain_lstm(model.forward_lstms[0], x[0])
    two = plain_lstm(model.forward_lstms[1], one) + one
    torch.testing.assert_close(found[0, 0], torch.cat([x[0], x[0]], -1))
    torch.testing.assert_close(found[1, 0, :, :6], one)
    torch.testing.assert_close(found[2, 0, :, :6], two)
    one = plain_lstm(model.backward_lstms[0], x[0].flip(0))
    torch.testing.assert_close(found[1, 0, :, 6:], one.flip(0))
    torch.testing.assert_close(found[2, 0, :, 6:], (plain_lstm(model.backward_lstms[1], one) + one).flip(0))


def plain_lstm(cell, x):
    """Gates written out: i f g o, the state projected."""
    h, c, out = x.new_zeros(cell.proj_size or cell.hidden_size), x.new_zeros(cell.hidden_size), []
    for step in x:
        i, f, g, o = (cell.weight_ih_l0 @ step + cell.bias_ih_l0 + cell.weight_hh_l0 @ h + cell.bias_hh_l0).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        h = cell.weight_hr_l0 @ h if cell.proj_size else h
        out.append(h)
    return torch.stack(out)


def test_characters_are_convolved_in_order(model):
    encode, word = model.char_cnn, words_to_char_ids(["dog"], CONFIG)
    x = encode.embed(word)[0].T
    found = []
    for f in encode.filters:
        width = f.weight.shape[2]
        each = [(f.weight * x[:, t : t + width]).sum((1, 2)) + f.bias for t in range(x.shape[1] - width + 1)]
        found.append(torch.stack(each).amax(0).relu())
    v = torch.cat(found)
    for way in encode.highways:
        new, gate = way(v).chunk(2)
        t = torch.sigmoid(gate)
        v = t * new.relu() + (1 - t) * v
    torch.testing.assert_close(encode(word)[0], encode.project(v))


def test_the_loss_predicts_the_next_word_forwards_and_the_previous_one_backwards(model):
    targets = torch.tensor([[1, 8, 9, 7, 2], [1, 10, 2, -100, -100], [1, 11, 8, 2, -100]])

    def loss(x, weight, wanted):
        return F.cross_entropy((x @ weight.T).flatten(0, 1), wanted.flatten(), reduction="sum")

    found = model(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS, targets=targets, loss=loss)
    top, expected = model(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS)[-1], 0
    for i, n in enumerate(LENGTHS.tolist()):
        for t in range(n - 1):
            expected -= model.head(top[i, t, :6]).log_softmax(-1)[targets[i, t + 1]]
            expected -= model.head(top[i, t + 1, 6:]).log_softmax(-1)[targets[i, t]]
    torch.testing.assert_close(found, expected)


def test_the_mix_with_one_weight_is_that_layer_and_an_even_one_the_mean(double):
    layers, mix = torch.randn(3, 2, 4, 5), ScalarMix(3)
    torch.testing.assert_close(mix(layers), layers.mean(0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([-torch.inf, 0.0, -torch.inf]))
        mix.scale.fill_(2.0)
    torch.testing.assert_close(mix(layers), 2 * layers[1])


def test_spelling_marks_begin_and_end_and_cuts_long_words():
    found = words_to_char_ids(["dog", "<s>", "naïve", "unpronounceable"], CONFIG)
    assert found[0, :6].tolist() == [BEGIN, 100, 111, 103, END, PAD]
    assert found[1, :4].tolist() == [BEGIN, BOS, END, PAD]
    assert found[2].tolist().count(0xC3) == 1  # bytes, not characters
    assert found.shape == (4, 12 + 3)
    assert found[3, 11] == END
    assert (found[3, 12:] == PAD).all()


def test_hidden_below_width_raises_and_equal_needs_no_projection():
    with pytest.raises(RegardError, match="hidden must be at least width"):
        ELMo(Config(vocab=9, width=8, hidden=4, filters=(2,)))
    assert not ELMo(Config(vocab=9, width=8, hidden=8, filters=(2,))).forward_lstms[0].proj_size


def test_the_published_sizes_have_the_parameters_that_were_published():
    from regard.catalogue import sizes

    body = {row["size"]: int(row["without"].replace(",", "")) / 1e6 for row in sizes("elmo")}
    assert [round(body[size], 1) for size in ("original", "medium", "small")] == pytest.approx(
        [93.6, 28.0, 13.6], abs=0.11
    )


@pytest.mark.long
def test_compiled_equals_eager(unchecked):
    torch.manual_seed(0)
    model = ELMo(CONFIG).eval()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    found = compiled(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS)
    torch.testing.assert_close(found, model(words_to_char_ids(WORDS, CONFIG), ROWS, LENGTHS))
