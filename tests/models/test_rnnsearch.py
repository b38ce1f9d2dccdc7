"""RNNsearch: the paper written out, searches equal their simple twins, maps can be seen.

The laws that it shares with all recurrent encoder-decoders are in tests/contracts/test_recurrent.py."""

import copy
import importlib.util
import math
import sys

import pytest
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

from regard.attention.capture.watch import watch
from regard.core.config import from_dict, to_dict
from regard.core.errors import RegardError, UnknownName
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.models import build
from regard.models.rnnsearch import SIZES, Config, RNNSearch
from tests.blocks.test_rnn import cell_twin, packed_twin
from tests.models.brute_force_search import brute_beam, ragged, targets

from .sequence_checks import check_padding_gets_no_gradient, check_padding_has_no_influence

EOS = 2


def tiny(seed=0, vocab=11, **settings):
    torch.manual_seed(seed)
    chosen = {"width": 12, "hidden": 10, "align_width": 9, "readout": 8, "dropout": 0.1, "tied": False} | settings
    model = build("rnnsearch", vocab=vocab, **chosen)
    with torch.no_grad():  # larger weights: sharper, more varied outputs than a fresh model's
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model.double().eval()


# -- reading a whole target --------------------------------------------------------------------------------------------


def by_hand(model, source, target):
    """One sentence, one word at a time, with PyTorch's own units; returns the logits T V."""
    memory, _ = packed_twin(model.encoder).double()(model.embed(source)[None])
    memory, decoder = memory[0], model.decoder
    state = torch.tanh(decoder.start_from.map(memory[0, model.config.hidden :]))
    cell, aligner = cell_twin(decoder.cells.cells[0]), decoder.aligner
    logits = []
    for token in target:
        word = decoder.embed(token)
        scores = aligner.score(torch.tanh(aligner.query(state) + aligner.memory(memory)))[:, 0]
        seen = scores.softmax(0) @ memory
        state = cell(torch.cat([word, seen])[None], state[None])[0]
        units = decoder.output.readout(torch.cat([state, seen, word]))
        logits.append(decoder.output.head(torch.maximum(units[0::2], units[1::2])))
    return torch.stack(logits)


def test_forward_equals_the_formulas_of_the_paper():
    model, (source, lengths), target = tiny(), ragged(), targets()
    found = model(source, target, lengths)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row], by_hand(model, source[row, :length], target[row]))


def test_padding_has_no_influence_and_no_gradient():
    model, (source, lengths), target = tiny(2), ragged(), targets()
    check_padding_has_no_influence(model, source, target, lengths)
    check_padding_gets_no_gradient(model, source, target, lengths)


def test_every_parameter_is_used():
    model, (source, lengths), target = tiny(), ragged(), targets()
    model(source, target, lengths).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


# -- writing, one token after another ----------------------------------------------------------------------------------


def test_a_state_is_a_value():
    model, (source, lengths) = tiny(), ragged(3)
    first, state = model.start(source, lengths, capacity=4)
    before = model.step(first, state)[0]
    model.step(torch.full((3, 1), 5), state)
    model.select(state, None, torch.zeros(3, 2, dtype=torch.long))
    torch.testing.assert_close(model.step(first, state)[0], before, rtol=0, atol=0)


class Remembers(nn.Module):
    """An aligner with a state: it looks less at where it looked before."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def keys(self, memory):
        return self.inner.keys(memory)

    def weights(self, query, keys, mask=None, state=None):
        now, _ = self.inner.weights(query, keys, mask)
        before = torch.zeros_like(now) if state is None else state[0]
        weights = now * torch.exp(-3.0 * before)
        weights = weights / weights.sum(-1, keepdim=True)
        return weights, (before + weights, weights)

    forward = weights


def test_the_aligner_state_follows_its_beam():
    model = tiny(1)
    model.decoder.aligner = Remembers(model.decoder.aligner)
    source, lengths = ragged(4)
    found = beam_search(model, source, lengths, beam_size=3, num_candidates=3, max_length=lengths + 3)
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 3, 3, 1.0)
        assert [h.tokens for h in found[row]] == [tokens for _, tokens, _ in expected]


@pytest.mark.parametrize("remembers", [False, True])
def test_a_frozen_state_is_updated_in_place_and_gives_the_same_result(remembers):
    model, (source, lengths) = tiny(1), ragged(4)
    if remembers:
        model.decoder.aligner = Remembers(model.decoder.aligner)
    words, order = torch.randint(3, 11, (5, 4, 3)), torch.randint(3, (5, 4, 3))
    with torch.inference_mode():
        first, state = model.start(source, lengths, capacity=20)
        _, state = model.step(first, state)
        state = model.select(state, None, torch.zeros(4, 3, dtype=torch.long))
        frozen = model.freeze(copy.deepcopy(state))
        at = frozen.hidden[0][0].data_ptr()
        for word, beams in zip(words, order, strict=True):
            expected, state = model.step(word, state)
            logits, frozen = model.step(word, frozen)
            torch.testing.assert_close(logits, expected, rtol=0, atol=0)
            state, frozen = model.select(state, None, beams), model.select(frozen, None, beams)
        assert frozen.hidden[0][0].data_ptr() == at
        dropped = model.select(frozen, torch.tensor([1, 3]), order[0, :2])
        assert dropped.hidden[0][0].shape[:2] == (2, 3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 1.0), (5, 0.6)])
def test_beam_equals_brute_force(seed, beams, penalty):
    model, (source, lengths) = tiny(seed), ragged(3, longest=7, seed=seed)
    found = beam_search(
        model, source, lengths, beam_size=beams, length_penalty=penalty, num_candidates=beams, max_length=lengths + 3
    )
    for row, length in enumerate(lengths.tolist()):
        expected = brute_beam(model, source[row, :length], length + 3, beams, penalty)
        assert [h.tokens for h in found[row]] == [tokens for _, tokens, _ in expected]
        assert [h.finished for h in found[row]] == [ended for _, _, ended in expected]
        for ours, (score, _, _) in zip(found[row], expected, strict=True):
            assert math.isclose(ours.score, score, rel_tol=1e-5, abs_tol=1e-5)


SEARCHES = {
    "greedy": lambda m, s, n, seed: [[h] for h in greedy_search(m, s, n, max_length=n + 6)],
    "beam": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, num_candidates=3, max_length=n + 6),
    "diverse": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, groups=2, num_candidates=4, max_length=n + 6),
    "sample": lambda m, s, n, seed: sample(m, s, n, num_samples=3, top_k=8, top_p=0.9, seed=seed, max_length=n + 6),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("seed", range(2))
def test_search_over_a_batch_equals_singles(name, seed):
    model, (source, lengths) = tiny(seed), ragged(9, seed=5)
    batch = SEARCHES[name](model, source, lengths, list(range(9)))
    assert len({tuple(h.tokens) for found in batch for h in found}) > 3  # not all the same by chance
    for row, length in enumerate(lengths.tolist()):
        (single,) = SEARCHES[name](model, source[row : row + 1, :length], lengths[row : row + 1], [row])
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]


# -- seeing ------------------------------------------------------------------------------------------------------------


def test_watch_captures_one_alignment_for_each_target_token():
    model, (source, lengths), target = tiny(), ragged(), targets()
    unseen = model(source, target, lengths)
    with watch(model) as seen:
        logits = model(source, target, lengths)
    assert torch.equal(logits, unseen)
    (trace,) = seen.traces()
    assert (trace.name, trace.kind) == ("decoder.aligner", "align")
    assert trace.weights.shape == (6, 1, 7, source.shape[1])
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(6, 1, 7, dtype=torch.float64))
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    assert (trace.weights * padding[:, None, None]).abs().max() == 0


# -- building and training ---------------------------------------------------------------------------------------------


def test_number_of_parameters_of_the_papers_size():
    config = Config(vocab=30_000)
    with torch.device("meta"):
        model = RNNSearch(config)
    count = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_modules()}
    assert count["embed"] == count["decoder.embed"] == 30_000 * 620
    assert count["encoder"] == 2 * 3 * (1000 * 620 + 1000 * 1000 + 2 * 1000)
    assert count["decoder.aligner"] == 1000 * 1000 + 1000 * 2000 + 1000
    assert count["decoder.output.head"] == 30_000 * 500


@pytest.mark.parametrize("size", [s for s in SIZES if s != "base"])
def test_every_size_builds_and_ties_share_one_table(size):
    model = build("rnnsearch", size=size, vocab=50)
    parts = model.embed, model.decoder.embed, model.decoder.output.head
    tables = {part.weight.data_ptr() for part in parts}
    assert len(tables) == (1 if model.config.tied else 3)
    assert model(torch.tensor([[4, 5, 2]]), torch.tensor([[1, 4]])).shape == (1, 2, 50)
    assert from_dict(Config, to_dict(model.config)) == model.config


def test_mismatched_settings_raise():
    with pytest.raises(RegardError, match="set readout=None"):
        build("rnnsearch", vocab=11, tied=True)
    with pytest.raises(UnknownName, match="did you mean 'additive'"):
        build("rnnsearch", vocab=11, aligner="addative")


def test_dropout_acts_in_training_only():
    model, (source, lengths), target = tiny(dropout=0.5), ragged(), targets()
    assert torch.equal(model(source, target, lengths), model(source, target, lengths))
    model.train()
    assert not torch.equal(model(source, target, lengths), model(source, target, lengths))


@pytest.fixture
def plain(unchecked, monkeypatch):
    """The model's files as a user imports them: shape checks, even disabled, hide from dynamo what it must not
    trace."""
    for name in ("regard.blocks.rnn", "regard.blocks.rnn_decoder", "regard.models.rnnsearch"):
        spec = importlib.util.spec_from_file_location(name, sys.modules[name].__file__)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_compiled_equals_eager_and_time_adds_no_graph(plain):
    (source, lengths), short, target = ragged(), targets(length=4), targets(length=7)
    model, graphs = plain.RNNSearch(plain.Config(11, width=12, hidden=10, readout=8)).double(), []

    def backend(graph, inputs):
        graphs.append(graph)
        return aot_eager(graph, inputs)

    run = torch.compile(model, backend=backend, dynamic=True)
    torch.testing.assert_close(run(source, short, lengths), model(source, short, lengths))
    before = len(graphs)
    expected = model(source, target, lengths)
    expected.square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    found = run(source, target, lengths)
    assert len(graphs) == before  # every step runs the one graph of a step
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name])


@pytest.mark.long
def test_it_learns_to_reverse_with_the_right_alignment():
    model = build("rnnsearch", size="tiny", vocab=14, width=32, hidden=32, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def batch(rows=64, longest=6):
        lengths = torch.randint(3, longest + 1, (rows,))
        words = torch.randint(3, 14, (rows, longest))
        place = torch.arange(longest)[None]
        source = words.masked_fill(place >= lengths[:, None], 0)
        turned = words.gather(1, torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place))
        wanted = torch.cat([turned, torch.zeros(rows, 1, dtype=torch.long)], 1)
        wanted.scatter_(1, lengths[:, None], EOS)
        target = torch.cat([torch.ones(rows, 1, dtype=torch.long), wanted[:, :-1]], 1)
        return source, lengths, target, wanted.masked_fill(torch.arange(longest + 1) > lengths[:, None], -100)

    model.train()
    for _ in range(150):
        source, lengths, target, wanted = batch()
        loss = nn.functional.cross_entropy(model(source, target, lengths).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    source, lengths, target, wanted = batch()
    with torch.no_grad(), watch(model) as seen:
        right = (model(source, target, lengths).argmax(-1) == wanted)[wanted >= 0]
    assert right.double().mean() > 0.9
    # the word written at t is word length - 1 - t of the source: there the weight lies
    place = (lengths[:, None] - 1 - torch.arange(6)).clamp(min=0)
    looked = seen["decoder.aligner"].weights[:, 0, :6].gather(2, place[..., None]).squeeze(-1)
    assert looked[torch.arange(6) < lengths[:, None]].mean() > 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("name", SEARCHES)
def test_a_cuda_graph_step_equals_the_cpu(name):
    model, (source, lengths) = tiny(1), ragged(9, seed=5)
    expected = SEARCHES[name](model, source, lengths, list(range(9)))
    model = model.cuda()
    found = SEARCHES[name](model, source.cuda(), lengths.cuda(), list(range(9)))
    assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in expected]


@pytest.mark.gpu
def test_trains_under_autocast_compiled(plain):
    model = plain.RNNSearch(plain.Config(11, width=12, hidden=10, readout=8)).cuda()
    (source, lengths), target = ragged(), targets()
    source, lengths, target = source.cuda(), lengths.cuda(), target.cuda()
    exact = model(source, target, lengths)
    run = torch.compile(model, dynamic=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = run(source, target, lengths)
    torch.testing.assert_close(logits.float(), exact, rtol=0.1, atol=0.1)
    logits.float().square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
