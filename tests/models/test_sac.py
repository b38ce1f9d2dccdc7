"""SAC: edges against a loop written from the formulas; the policy gradient against enumeration of all graphs."""

from itertools import product

import pytest
import torch

import regard
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.data.text.labeled_text import TextBatch
from regard.models import build
from regard.models.sac import Config
from regard.tasks.reinforce import Reinforce
from regard.tasks.text import classification, reinforced_classification
from regard.training import train
from regard.training.recipe import Recipe, Train
from tests.tasks.text_data import data, written

TINY = {"vocab": 19, "width": 12, "heads": 3, "ffn": 16, "edges": 2, "predictor_width": 5, "length": 16, "dropout": 0.0}


def small(**settings):
    return build("sac", **TINY | {"layers": 2, "distance": 2} | settings)


def edges_by_loop(predict, x, path=None):
    """The edges of one text, each node by itself, and their log-probabilities."""
    found, log_probs = [], []
    for n in range(len(x)):
        own, state, last = [n], None, x[n]
        for t in range(predict.edges):
            state = predict.cell(last[None], state)
            query, free = predict.query(state[0][0]), [m for m in range(len(x)) if m not in own]
            if not free:
                break
            bias = [predict.distance_bias[max(-2, min(2, m - n)) + 2] for m in free]
            scores = torch.stack([query @ predict.key(x[m]) / 5**0.5 + b for m, b in zip(free, bias, strict=True)])
            m = free[int(scores.argmax())] if path is None else path[n][t]
            log_probs.append(scores.log_softmax(0)[free.index(m)])
            own.append(m)
            last = x[m]
        found.append(own)
    return found, log_probs


def by_loop(model, tokens):
    """The vectors of one text: every token attends to its edges, one after another."""
    x = model.norm(model.embed(tokens) + model.positions.table.weight[: len(tokens)])
    for predict, block in zip(model.predictors, model.blocks, strict=True):
        edges, _ = edges_by_loop(predict, x)
        q, k, v = (each[0] for each in block.mix.project(x[None]))  # H N D
        rows = [
            torch.cat([(q[h, n] @ k[h, own].mT / q.shape[-1] ** 0.5).softmax(0) @ v[h, own] for h in range(len(q))])
            for n, own in enumerate(edges)
        ]
        x = block.mix_norm(x + block.mix.join.out(torch.stack(rows)))
        x = block.feed_norm(x + block.feed(x))
    return x


def test_it_is_the_loop_of_the_formulas_in_value_and_gradient(double):
    model = small().eval()
    for predict in model.predictors:
        torch.nn.init.normal_(predict.distance_bias)
    tokens, lengths = torch.randint(19, (4, 9)), torch.tensor([9, 6, 2, 1])
    hidden, pooled = model.encode(tokens, lengths=lengths)
    expected = [by_loop(model, tokens[b, :n]) for b, n in enumerate(lengths.tolist())]
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(hidden[b, :n], expected[b])
        torch.testing.assert_close(pooled[b], expected[b].mean(0))
    trained = [p for name, p in model.named_parameters() if "predictors" not in name]
    found = hidden.square()[torch.arange(9) < lengths[:, None]].sum()
    ours, loops = (torch.autograd.grad(x, trained) for x in (found, sum(x.square().sum() for x in expected)))
    for a, b in zip(ours, loops, strict=True):
        torch.testing.assert_close(a, b)


def test_published_log_probabilities_are_those_of_the_sampled_edges(double):
    model, tokens, state = small(layers=1), torch.randint(19, (3, 7)), PassState()
    lengths = torch.tensor([7, 4, 2])
    with regard.watch(model) as seen:
        model.encode(tokens, lengths=lengths, pass_state=state)
    (log_probs,) = state.collect("choice_log_prob")
    x = model.norm(model.embed(tokens) + model.positions.table.weight[:7])
    weights = seen["blocks.0.mix"].weights
    assert (weights[0] > 0).sum(-1).eq(3).all()
    for b, n in enumerate(lengths.tolist()):
        # of two orders of the same edges, one is the sampled one
        others = [[m for m in range(n) if m != i and weights[b, 0, i, m] > 0] for i in range(n)]
        totals = [
            torch.stack(edges_by_loop(model.predictors[0], x[b, :n], path)[1]).sum().item()
            for path in product(*([own, own[::-1]] for own in others))
        ]
        assert min(abs(total - log_probs[b].sum().item()) for total in totals) < 1e-9


def reinforced(folder, **how):
    config = reinforced_classification.Config(reinforce=Reinforce(entropy=0.0, **how))
    return config.build(data(written(folder), "labelled"), seed=3)


def test_the_expected_gradient_is_that_of_the_enumerated_expectation(double, tmp_path):
    """Three tokens, one edge each: eight graphs g of reward r(g). Σ p(g) (∂r(g) + r(g) ∂log p(g)) = ∂ Σ p(g) r(g)."""
    task, model = reinforced(tmp_path, baseline="none"), small(layers=1, edges=1, head="classes(4)")
    tokens, labels = torch.randint(19, (1, 3)), torch.tensor([2])
    batch = TextBatch(tokens, torch.zeros_like(tokens), torch.tensor([3]), labels)
    expectation, surrogate, total = 0.0, 0.0, 0.0
    for path in product((1, 2), (0, 2), (0, 1)):
        with model.predictors[0].force_path(torch.tensor([path])):
            state = PassState()
            reward = model(tokens, lengths=batch.lengths, pass_state=state).log_softmax(-1)[0, 2]
            probability = state.collect("choice_log_prob")[0].sum().exp()
            loss, parts = task.loss(model, batch)
        torch.testing.assert_close(parts["loss"].to(reward), -reward.detach(), rtol=1e-5, atol=1e-5)
        expectation = expectation + probability * reward
        surrogate = surrogate + probability.detach() * loss
        total += probability.item()
    assert abs(total - 1) < 1e-12
    parameters = list(model.parameters())
    exact = torch.autograd.grad(expectation, parameters, allow_unused=True)
    found = torch.autograd.grad(surrogate, parameters, allow_unused=True)
    for ours, expected in zip(found, exact, strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            torch.testing.assert_close(-ours, expected, rtol=1e-4, atol=1e-6)  # the task's losses are in float32


@pytest.mark.parametrize(
    "how", [{"baseline": "leave_one_out", "num_samples": 2}, {"baseline": "learned"}, {"baseline": "moving_average"}]
)
def test_every_parameter_learns_with_every_baseline(how, tmp_path):
    task = reinforced(tmp_path, **how)
    model = build("sac", **TINY | {"vocab": task.text.size, "head": task.head()})
    task.fit(model.config)
    tokens = torch.randint(task.text.size, (3, 6))
    given = TextBatch(tokens, torch.zeros_like(tokens), torch.tensor([6, 4, 1]), torch.tensor([0, 1, 1]))
    loss, parts = task.loss(model, given)
    loss.backward()
    assert set(parts) == {"loss", "entropy"}
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    task.after_update(model, 1)


def test_with_all_edges_it_is_a_transformer():
    model, tokens = small(edges=8).eval(), torch.randint(19, (2, 9))
    with torch.no_grad(), regard.watch(model) as seen:
        model(tokens)
    assert (seen["blocks.1.mix"].weights > 0).all()


def test_a_task_without_rewards_is_refused(tmp_path):
    config = Config(**TINY | {"layers": 1})
    recipe = Recipe(config, classification.Config(), data(written(tmp_path), "labelled"), Train(steps=1))
    with pytest.raises(RegardError, match="EdgePredictor samples, but the task does not train it"):
        train(recipe, tmp_path / "run")
