"""The laws of recurrent encoder-decoders, over their parts: padding changes nothing, a batch is its singles, steps are
one forward, beams share a memory, all searches run, alignments are seen."""

import copy
from itertools import pairwise

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.capture.watch import watch
from regard.core.categorical import sample_categorical
from regard.core.config import from_dict, to_dict
from regard.core.decodable import Decodable
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.decoding.constrained_search import constrained_beam_search
from regard.models import build
from tests.models.brute_force_search import brute_beam, ragged, targets
from tests.models.sequence_checks import (
    check_batch_equals_singles,
    check_padding_has_no_influence,
    check_steps_equal_one_forward,
)

VARIANTS = {f"rnnsearch-{name}": ("rnnsearch", {"aligner": name, "encoder": "gru(hidden=5)"}) for name in ALIGNERS}
VARIANTS |= {
    "rnnsearch-rnn": ("rnnsearch", {"encoder": "rnn", "cell": "rnn"}),
    "rnnsearch-deep-lstm": ("rnnsearch", {"encoder": "lstm(layers=2)", "cell": "lstm", "layers": 2}),
    "rnnsearch-forwards": ("rnnsearch", {"encoder": "gru(directions=1)"}),
    "rnnsearch-bare": ("rnnsearch", {"encoder": "none"}),
    "seq2seq-cho": ("seq2seq", {}),
    "seq2seq-sutskever": (
        "seq2seq",
        {"encoder": "lstm(layers=2, directions=1)", "cell": "lstm", "layers": 2, "context": "initial_state"},
    ),
    "seq2seq-rnn": ("seq2seq", {"encoder": "rnn", "cell": "rnn"}),
    "luong-fed": ("luong", {"decoder": "input_feeding"}),
    "luong-fed-local_predictive": ("luong", {"decoder": "input_feeding", "aligner": "local_predictive(window=2)"}),
    "luong-fed-deep-lstm": (
        "luong",
        {"decoder": "input_feeding", "encoder": "lstm(layers=2)", "cell": "lstm", "layers": 2},
    ),
    "luong-free": ("luong", {"decoder": "no_input_feeding"}),
    "luong-free-additive": ("luong", {"decoder": "no_input_feeding", "aligner": "additive"}),
    "luong-free-local_monotonic": ("luong", {"decoder": "no_input_feeding", "aligner": "local_monotonic(window=2)"}),
    "luong-free-deep-lstm": ("luong", {"decoder": "no_input_feeding", "encoder": "lstm", "cell": "lstm", "layers": 2}),
}
every = pytest.mark.parametrize("variant", VARIANTS)


def tiny(variant, seed=0, vocab=11):
    torch.manual_seed(seed)
    name, settings = VARIANTS[variant]
    chosen = {"width": 12, "hidden": 10, "readout": 8, "dropout": 0.1, "tied": False}
    model = build(name, size="tiny", vocab=vocab, **chosen | settings)
    with torch.no_grad():  # larger weights: sharper, more varied outputs than a fresh model's
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.double().eval()


@every
def test_steps_equal_one_forward(variant):
    model, (source, lengths), target = tiny(variant), ragged(), targets()
    assert isinstance(model, Decodable)
    check_steps_equal_one_forward(model, source, target, lengths)


@pytest.mark.parametrize("aligner", ALIGNERS)
def test_steps_equal_one_forward_where_all_states_come_first(aligner):
    """An aligner that remembers still looks one step after the other; only the others look side by side."""
    torch.manual_seed(0)
    settings = {"width": 12, "hidden": 10, "readout": 8, "tied": False, "encoder": "gru(directions=1)"}
    model = (
        build("luong", size="tiny", vocab=11, decoder="no_input_feeding", aligner=aligner, **settings).double().eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    (source, lengths), target = ragged(), targets()
    check_steps_equal_one_forward(model, source, target, lengths)


@every
def test_a_batch_equals_its_singles(variant):
    model, (source, lengths), target = tiny(variant, 1), ragged(), targets()
    check_batch_equals_singles(model, source, target, lengths, written=torch.tensor([7, 3, 1, 5, 7, 2]))


@every
def test_padding_has_no_influence_and_the_future_neither(variant):
    model, (source, lengths), target = tiny(variant, 2), ragged(), targets()
    found = model(source, target, lengths)
    check_padding_has_no_influence(model, source, target, lengths)
    torch.testing.assert_close(model(source, target[:, :4], lengths), found[:, :4])


@every
def test_nothing_to_read_and_nothing_to_write_are_not_an_error(variant):
    model, target = tiny(variant), targets(3)
    source, lengths = torch.full((3, 4), 5), torch.tensor([4, 0, 1])
    logits = model(source, target, lengths)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(model(source[:, :1], target, torch.tensor([1, 0, 1]))[2], logits[2])
    nothing = model(source, target, torch.zeros(3, dtype=torch.long))  # a batch of padding
    torch.testing.assert_close(nothing[1], logits[1])
    assert model(source, target[:, :0], lengths).shape == (3, 0, 11)
    assert model(source[:0], target[:0], lengths[:0]).shape == (0, 7, 11)


@every
def test_every_parameter_is_used(variant):
    model, (source, lengths), target = tiny(variant), ragged(), targets()
    model.train()(source, target, lengths).square().sum().backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert not {name for name in unused if ".aligner." not in name}  # a hard choice has no gradient of its own


@every
def test_beams_share_the_memory_and_are_selected_like_rows(variant):
    model, (source, lengths) = tiny(variant, 3), ragged(4)
    paths = torch.randint(3, 11, (4, 3, 5))
    _, state = model.start(source, lengths, capacity=15)
    memory = state.memory
    state = model.select(state, None, torch.zeros(4, 3, dtype=torch.long))  # one beam becomes three
    for t in range(4):
        _, state = model.step(paths[:, :, t], state)
    assert state.memory is memory
    rows, beams = torch.tensor([2, 0]), torch.tensor([[1, 1], [2, 0]])
    kept = model.select(state, rows, beams)
    assert kept.memory.values.shape[0] == 2
    logits, _ = model.step(paths[rows[:, None], beams, 4], kept)
    for r, row in enumerate(rows.tolist()):
        for k in range(2):
            whole = model(source[row : row + 1, : lengths[row]], paths[row, beams[r, k]][None])
            torch.testing.assert_close(logits[r, k], whole[0, -1])


@every
def test_a_frozen_state_is_written_in_place_and_means_the_same(variant):
    model, (source, lengths) = tiny(variant, 1), ragged(4)
    words, order = torch.randint(3, 11, (5, 4, 3)), torch.randint(3, (5, 4, 3))
    with torch.inference_mode():
        first, state = model.start(source, lengths, capacity=20)
        _, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(4, 3, dtype=torch.long))
        frozen = model.freeze(copy.deepcopy(state))
        held = places(frozen.hidden) + places(frozen.aligner_state)
        for word, beams in zip(words, order, strict=True):
            expected, state = model.step(word, state)
            logits, frozen = model.step(word, frozen)
            torch.testing.assert_close(logits, expected, rtol=0, atol=0)
            state, frozen = model.select(state, None, beams), model.select(frozen, None, beams)
        assert places(frozen.hidden) + places(frozen.aligner_state) == held


def places(value):
    if value is None:
        return []
    return [p for part in value for p in places(part)] if isinstance(value, tuple) else [value.data_ptr()]


SEARCHES = {
    "greedy": lambda m, s, n, seed: [[h] for h in greedy_search(m, s, n, max_length=n + 6)],
    "beam": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, num_candidates=3, max_length=n + 6),
    "diverse": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, groups=2, num_candidates=4, max_length=n + 6),
    "sample": lambda m, s, n, seed: sample(m, s, n, num_samples=3, top_k=8, top_p=0.9, seed=seed, max_length=n + 6),
    "must": lambda m, s, n, seed: constrained_beam_search(
        m, s, n, phrases=[[[5, 6]]] * len(s), beam_size=4, max_length=n + 6
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("variant", ["seq2seq-cho", "rnnsearch-deep-lstm", "luong-fed", "luong-free-local_monotonic"])
def test_a_search_over_a_batch_gives_what_singles_give(name, variant):
    model, (source, lengths) = tiny(variant), ragged(5, seed=5)
    batch = SEARCHES[name](model, source, lengths, list(range(5)))
    for row, length in enumerate(lengths.tolist()):
        (single,) = SEARCHES[name](model, source[row : row + 1, :length], lengths[row : row + 1], [row])
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]
        if name == "must":
            tokens = batch[row][0].tokens
            assert (5, 6) in pairwise(tokens)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SEARCHES)
@every
def test_a_recorded_step_gives_what_a_cpu_gives(name, variant):
    model, (source, lengths) = tiny(variant, 1), ragged(9, seed=5)
    expected = SEARCHES[name](model, source, lengths, list(range(9)))
    found = SEARCHES[name](model.cuda(), source.cuda(), lengths.cuda(), list(range(9)))
    assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in expected]


@pytest.mark.gpu
@every
def test_it_trains_in_bfloat16(variant):
    model, (source, lengths), target = tiny(variant).float().cuda().train(), ragged(), targets()
    source, lengths, target = source.cuda(), lengths.cuda(), target.cuda()
    for own in (None, torch.rand(target.shape, device="cuda") < 0.5):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(source, target, lengths, sampling_mask=own)
        logits.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@every
def test_beam_equals_brute_force(variant):
    model, (source, lengths) = tiny(variant, 2), ragged(2, longest=5, seed=3)
    found = beam_search(model, source, lengths, beam_size=3, num_candidates=3, max_length=lengths + 2)
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 2, 3, 1.0)
        assert [h.tokens for h in found[row]] == [tokens for _, tokens, _ in expected]


@pytest.mark.parametrize("variant", [name for name in VARIANTS if not name.startswith("seq2seq")])
def test_watching_gives_one_row_a_target_token(variant):
    model, (source, lengths), target = tiny(variant), ragged(), targets()
    unseen = model(source, target, lengths)
    with watch(model) as seen:
        logits = model(source, target, lengths)
    assert torch.equal(logits, unseen)
    trace = seen["decoder.aligner"]
    assert trace.kind == "align"
    assert trace.weights.shape == (6, 1, 7, source.shape[1])
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    assert (trace.weights * padding[:, None, None]).abs().max() == 0


@every
def test_a_model_is_rebuilt_from_its_config(variant):
    model = tiny(variant)
    again = type(model)(from_dict(type(model.config), to_dict(model.config)))
    assert again.load_state_dict(model.state_dict()).missing_keys == []


# -- scheduled sampling ------------------------------------------------------------------------------------------------


@every
def test_with_no_word_of_its_own_it_reads_the_target(variant):
    model, (source, lengths), target = tiny(variant), ragged(), targets()
    forced = torch.zeros_like(target, dtype=torch.bool)
    torch.testing.assert_close(model(source, target, lengths, sampling_mask=forced), model(source, target, lengths))


@every
def test_with_all_words_of_its_own_the_target_does_not_matter(variant):
    model, (source, lengths), target = tiny(variant), ragged(), targets()
    own = torch.ones_like(target, dtype=torch.bool)
    runs = []
    for written in (target, targets(seed=9)):
        torch.manual_seed(4)
        runs.append(model(source, written, lengths, sampling_mask=own))
    torch.testing.assert_close(*runs, rtol=0, atol=0)  # the first token is the begin token in both


def test_words_of_its_own_are_what_it_would_draw():
    model, (source, lengths), target = tiny("rnnsearch-additive", 3), ragged(2), targets(2)
    own = torch.tensor([[False, False, True, False, True, False, False]] * 2)
    torch.manual_seed(1)
    found = model(source, target, lengths, sampling_mask=own)
    torch.manual_seed(1)
    read, words = target.clone(), [None] + [sample_categorical(found[:, t : t + 1].softmax(-1)) for t in range(6)]
    for t in (2, 4):
        read[:, t] = words[t][:, 0]
    torch.testing.assert_close(model(source, read, lengths), found)


def test_draws_follow_the_distribution():
    chances = torch.tensor([0.1, 0.6, 0.3])
    counts = sample_categorical(chances.expand(1, 20_000, 3))[0].bincount(minlength=3) / 20_000
    torch.testing.assert_close(counts, chances, rtol=0, atol=0.02)
