"""The online model: what it writes saw nothing later, steps equal one forward, streams equal searches, and its choices
have the laws of learning from choices, against every way of writing."""

import math
from functools import partial
from itertools import combinations, product

import pytest
import torch
from torch import nn

from regard.attention.aligners.hard import collect_choices
from regard.attention.capture.watch import watch
from regard.core.config import from_dict, to_dict
from regard.core.decodable import Decodable
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.decoding.online_decoder import OnlineDecoder
from regard.models import build
from regard.models.online_alignment import SIZES, Config
from regard.tasks.exact_alignments import enumerate_alignments
from regard.tasks.reinforce import PolicyGradientLoss, Reinforce, token_log_probs
from tests.models import brute_force_search
from tests.models.sequence_checks import check_batch_equals_singles, check_steps_equal_one_forward

SOURCE, TARGET = torch.tensor([4, 6, 5, 2]), torch.tensor([1, 5, 7, 2])  # four places, three tokens


@pytest.fixture(autouse=True)
def _double(double):
    pass


def tiny(seed=6, **settings):
    torch.manual_seed(seed)
    model = build("online_alignment", vocab=9, **{"width": 5, "hidden": 6, "layers": 2, "cell": "gru"} | settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
        model.emitter.unit.weight.normal_(std=3)  # a fresh one writes and waits alike, whatever it hears
    return model.eval()


ragged, targets = partial(brute_force_search.ragged, vocab=9), partial(brute_force_search.targets, length=5, vocab=9)
CELLS = [{"cell": "gru"}, {"cell": "lstm", "layers": 1}, {"cell": "rnn"}]


@pytest.mark.parametrize("settings", CELLS, ids=lambda s: s["cell"])
def test_batch_equals_singles(settings):
    model, (source, lengths), target = tiny(**settings), ragged(), targets()
    check_batch_equals_singles(model, source, target, lengths)


@pytest.mark.parametrize("settings", CELLS, ids=lambda s: s["cell"])
def test_steps_equal_one_forward(settings):
    model, (source, lengths), target = tiny(**settings), ragged(), targets()
    assert isinstance(model, Decodable)
    check_steps_equal_one_forward(model, source, target, lengths, capacity=0)


def test_emitted_tokens_do_not_depend_on_later_inputs():
    """Change the source from a place on: logits of tokens written before it stay to the bit."""
    model, (source, lengths), target = tiny(6), (torch.randint(3, 9, (8, 7)), None), targets(8)
    with watch(model) as seen:
        wanted = model(source, target, lengths)
    place = seen["emitter"].weights[:, 0].argmax(-1)  # B T
    early = 0
    for at in range(1, 7):
        other = source.clone()
        other[:, at:] = (other[:, at:] - 3 + 1) % 6 + 3
        before = place < at
        found = model(other, target, lengths)
        assert torch.equal(found[before], wanted[before])
        early += int(before.sum())
        assert not torch.equal(found[~before], wanted[~before])
    assert early > 20


def test_emissions_move_forwards_and_the_rest_comes_at_the_end():
    model, (source, lengths), target = tiny(6), ragged(), targets()
    with watch(model) as seen:
        model(source, target, lengths)
    trace = seen["emitter"]
    assert trace.kind == "align"
    assert trace.weights.shape == (6, 1, 5, source.shape[1])
    assert torch.equal(trace.weights.sum(-1), torch.ones(6, 1, 5))
    place = trace.weights[:, 0].argmax(-1)
    moved = place.diff(dim=1)
    at_end = place[:, 1:] == lengths[:, None] - 1
    assert ((moved > 0) | at_end).all()
    assert 0 < at_end.double().mean() < 1


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_streaming_equals_greedy_search(seed):
    model, (source, lengths) = tiny(seed), ragged(12, seed=seed)
    found = greedy_search(model, source, lengths, max_length=30)
    sooner = 0
    for row, n in enumerate(lengths.tolist()):
        stream = OnlineDecoder(model, max_trailing_tokens=30)
        while_read = [token for x in source[row, :n].tolist() for token in stream.read(x)]
        sooner += len(while_read)
        said = [*while_read, *stream.end()][:30]
        assert said == found[row].tokens
        assert stream.read(3) == []  # it is over
    assert sooner > 0


SEARCHES = {
    "greedy": lambda m, s, n, seed: [[h] for h in greedy_search(m, s, n, max_length=n + 6)],
    "beam": lambda m, s, n, seed: beam_search(m, s, n, beam_size=4, num_candidates=3, max_length=n + 6),
    "sample": lambda m, s, n, seed: sample(m, s, n, num_samples=3, top_k=8, seed=seed, max_length=n + 6),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_search_over_a_batch_equals_singles(name):
    model, (source, lengths) = tiny(1), ragged(7, seed=5)
    batch = SEARCHES[name](model, source, lengths, list(range(7)))
    for row, n in enumerate(lengths.tolist()):
        (single,) = SEARCHES[name](model, source[row : row + 1, :n], lengths[row : row + 1], [row])
        assert [h.tokens for h in batch[row]] == [h.tokens for h in single]


# -- frames ------------------------------------------------------------------------------------------------------------


def test_frames_are_stacked_and_padding_has_no_influence():
    model = tiny(input_dim=3, frame_stack=2, width=4)
    frames, lengths, target = torch.randn(3, 7, 3), torch.tensor([7, 4, 5]), targets(3)
    frames[torch.arange(7)[None] >= lengths[:, None]] = 0.0
    together = model(frames, target, lengths)
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row : row + 1], model(frames[row : row + 1, :n], target[row : row + 1]))
        stream = OnlineDecoder(model, max_trailing_tokens=9)
        said = [token for frame in frames[row, :n] for token in stream.read(frame)]
        found = greedy_search(model, frames[row : row + 1, :n], lengths[row : row + 1], max_length=20)[0].tokens
        assert [*said, *stream.end()][:9] == found[:9]
    with pytest.raises(RegardError, match="frame_stack needs frames"):
        tiny(frame_stack=2)


@pytest.mark.parametrize("settings", [{}, {"input_dim": 3, "frame_stack": 2}], ids=["tokens", "frames"])
def test_a_source_with_several_targets_is_encoded_once(settings):
    """Value and gradient are those of a source that is heard anew for each."""
    model, target = tiny(**settings), targets(6)
    source, lengths = (torch.randn(2, 7, 3), torch.tensor([7, 4])) if settings else ragged(2)
    found = [
        model(source, target, lengths),
        model(source.repeat_interleave(3, 0), target, lengths.repeat_interleave(3, 0)),
    ]
    torch.testing.assert_close(*found)
    grads = [torch.autograd.grad(logits.square().sum(), [*model.parameters()], allow_unused=True) for logits in found]
    torch.testing.assert_close(*[[g for g in each if g is not None] for each in grads])


@pytest.mark.parametrize("offset", [0.0, -1.5])
def test_initial_emission_rate_follows_emission_bias(offset):
    """Places read before the first token: those of a coin that falls so, one after another."""
    torch.manual_seed(0)
    model = build("online_alignment", vocab=9, width=5, hidden=6, emission_bias=offset).train()
    with watch(model) as seen:
        model(torch.randint(3, 9, (500, 60)), targets(500))
    first = seen["emitter"].weights[:, 0, 0].argmax(-1).double()
    assert float(first.mean()) == pytest.approx(math.exp(-offset), rel=0.15)  # (1 - p) / p


def test_empty_source_and_empty_target_work():
    model = tiny()
    assert model(torch.zeros(2, 0, dtype=torch.long), targets(2)).shape == (2, 5, 9)
    assert model(SOURCE[None], torch.zeros(1, 0, dtype=torch.long)).shape == (1, 0, 9)
    one = model(torch.zeros(2, 3, dtype=torch.long), targets(2), torch.tensor([0, 0]))
    assert torch.isfinite(one).all()
    assert (
        OnlineDecoder(model, max_trailing_tokens=4).end()
        == greedy_search(model, torch.zeros(1, 0, dtype=torch.long), max_length=4)[0].tokens
    )


# -- learning from its choices -----------------------------------------------------------------------------------------


def gradients(value, model):
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    parts = zip(model.parameters(), found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in parts])


def test_all_paths_are_distinct_and_their_probabilities_sum_to_one():
    every = enumerate_alignments(tiny(), SOURCE, TARGET)
    assert len(every.paths) == sum(math.comb(4, k) for k in range(4))
    assert len({tuple(path) for path in every.paths.tolist()}) == len(every.paths)
    torch.testing.assert_close(every.chances.sum(), torch.tensor(1.0))
    assert every.chances.max() < 0.9
    assert every.bound < every.likelihood - 1e-4


def test_log_probability_of_a_path_is_the_product_of_its_decisions():
    model = tiny()
    every = enumerate_alignments(model, SOURCE, TARGET)
    heard = model.encode(SOURCE[None])
    for row in (0, 3, 7, len(every.paths) - 1):
        path, hidden, wrote = every.paths[row].tolist(), model.initial_states(1, heard.input_gates), 0.0
        log_s, rewards, t = torch.zeros(3), torch.zeros(3), 0
        for step in range(4 + 3):
            known = heard.input_gates[:, min(step, 4)][:, None]
            words = model.embed_target(TARGET[t].view(1, 1))
            hidden, _ = model.step_and_decide(known, words, torch.full((1, 1, 1), wrote), hidden)
            p = model.emitter.unit(hidden[-1][0]).sigmoid().squeeze()
            writes = step >= 4 or path[t] == step
            if step < 4:
                log_s[t] += (p if writes else 1 - p).log().detach()
            wrote = float(writes)
            if writes:
                rewards[t] = model.head(hidden[-1][0])[0, 0].log_softmax(-1)[TARGET[t + 1]].detach()
                t += 1
            if t == 3:
                break
        torch.testing.assert_close(every.log_s[row].detach(), log_s)
        torch.testing.assert_close(every.rewards[row].detach(), rewards)


@pytest.mark.parametrize("baseline", ["none", "learned"])
@pytest.mark.parametrize("credit", ["whole", "to_go"])
def test_the_expectation_of_the_estimate_is_the_exact_gradient(credit, baseline):
    model = tiny()
    exact = gradients(enumerate_alignments(model, SOURCE, TARGET).bound, model)
    every, choices = (
        enumerate_alignments(model, SOURCE, TARGET),
        PolicyGradientLoss(Reinforce(credit=credit, baseline=baseline, entropy=0.0)),
    )
    choices.baseline.fit(6)
    if baseline == "learned":
        nn.init.normal_(choices.baseline.module.weight)
    states = every_state(model, every.paths)
    total = (every.chances.detach() * every.rewards.sum(1)).sum()
    for row, p in enumerate(every.chances.detach()):
        one = slice(row, row + 1)
        log_s, real = every.log_s[one], torch.ones(1, 3, dtype=torch.bool)
        total = total - p * choices.loss(log_s, torch.zeros(1, 3), every.rewards[one], real, 0, states[one])
    torch.testing.assert_close(gradients(total, model), exact)


def every_state(model, all_paths):
    """What a learned baseline sees while these paths are followed."""
    model.emitter.train()
    pass_state = PassState()
    with model.emitter.force_path(all_paths):
        rows = SOURCE.expand(len(all_paths), -1), TARGET[:-1].expand(len(all_paths), -1)
        model(*rows, pass_state=pass_state)
    model.eval()
    return collect_choices(pass_state).queries


def test_the_mean_of_many_sampled_gradients_is_the_exact_one():
    assert abs(off(1.0)) < 3
    assert abs(off(0.7)) > 6  # taught too little: it would be seen


def off(weight, batches=40, many=300):
    model = tiny()
    exact = gradients(enumerate_alignments(model, SOURCE, TARGET).bound, model)
    every = enumerate_alignments(model, SOURCE, TARGET)
    along = exact - gradients((every.chances.detach() * every.rewards.sum(1)).sum(), model)
    model.train()
    torch.manual_seed(5)
    choices = PolicyGradientLoss(Reinforce(weight=weight, baseline="leave_one_out", num_samples=many, entropy=0.0))
    found = []
    for _ in range(batches):
        pass_state = PassState()
        logits = model(SOURCE.expand(many, -1), TARGET[:-1].expand(many, -1), pass_state=pass_state)
        rewards = token_log_probs(logits, TARGET[1:].expand(many, -1))
        loss = (
            choices.loss(*collect_choices(pass_state)[:2], rewards, torch.ones_like(rewards, dtype=torch.bool))
            - rewards.sum()
        )
        found.append(-gradients(loss / many, model) @ along)
    found = torch.stack(found)
    return ((found.mean() - exact @ along) / (found.std() / batches**0.5)).item()


def test_decisions_are_published_in_training_mode_only():
    model, pass_state = tiny().train(), PassState()
    model(SOURCE[None], TARGET[None, :-1], pass_state=pass_state)
    log_s, entropy, queries = collect_choices(pass_state)
    assert log_s.shape == entropy.shape == (1, 3)
    assert queries.shape == (1, 3, 6)
    before, pass_state = torch.get_rng_state(), PassState()
    model.eval()(SOURCE[None], TARGET[None, :-1], pass_state=pass_state)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RegardError, match="training mode"):
        collect_choices(pass_state)


def test_paths_are_all_increasing_sequences():
    paths = list(tiny().emitter.all_paths(3, 2))
    assert sorted(paths) == sorted([*combinations(range(3), 2), *((p, 3) for p in range(3)), (3, 3)])
    assert all(a < b or b == 3 for a, b in paths)
    assert len(list(product(range(3), repeat=2))) == 9  # of which hard attention would try them all


@pytest.mark.long
def test_it_learns_a_monotone_task_and_emits_early():
    """Marks between letters are to be left out: write at each letter, read on at each mark."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    model = build("online_alignment", vocab=8, width=16, hidden=32, layers=1, cell="gru").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    choices = PolicyGradientLoss(
        Reinforce(entropy=0.3, final_entropy=0.02, entropy_steps=100, baseline="leave_one_out", num_samples=4)
    )

    def batch(rows):
        letters = torch.randint(4, 8, (rows, 3))
        gaps = torch.rand(rows, 6).argsort(1)[:, :3].sort(1).values
        source = torch.full((rows, 7), 3).scatter(1, gaps, letters)
        source[:, -1] = 2
        ends = torch.full((rows, 1), 2)
        return source, torch.cat([torch.ones(rows, 1, dtype=torch.long), letters, ends], 1), gaps

    for step in range(200):
        source, target, _ = (x.repeat_interleave(4, 0) for x in batch(24))
        pass_state = PassState()
        rewards = token_log_probs(model(source, target[:, :-1], pass_state=pass_state), target[:, 1:])
        loss = choices.loss(*collect_choices(pass_state)[:2], rewards, torch.ones_like(rewards, dtype=torch.bool), step)
        optimizer.zero_grad()
        ((loss - rewards.sum()) / rewards.numel()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    source, target, gaps = batch(100)
    with torch.no_grad(), watch(model.eval()) as seen:
        right = model(source, target[:, :-1]).argmax(-1) == target[:, 1:]
    assert right.double().mean() > 0.95
    place = seen["emitter"].weights[:, 0, :3].argmax(-1)
    assert (place >= gaps).double().mean() > 0.95  # it cannot know a letter before it is there


@pytest.mark.parametrize("size", SIZES)
def test_every_size_builds(size):
    with torch.device("meta"):
        model = build("online_alignment", size=size, vocab=50)
    assert from_dict(Config, to_dict(model.config)) == model.config
