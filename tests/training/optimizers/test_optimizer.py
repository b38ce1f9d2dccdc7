"""Optimizers: each rule against its formula, skipped updates, state, layer-wise learning rates."""

import math

import pytest
import torch
from torch import nn

from regard.core.errors import BadInput, UnknownName
from regard.training.optimizers import OPTIMIZERS, adamw, muon, sgd
from regard.training.optimizers.optimizer import Optimizer, layer_factors, parameters_without_decay, total_norm
from tests.training.run_ranks import together

RULES = [*OPTIMIZERS, "sgd(nesterov=True)", "sgd(momentum=0)", "muon(nesterov=False)"]
PLAIN = [
    "adamw",
    "adam",
    "sgd",
    "sgd(nesterov=True)",
    "sgd(momentum=0)",
    "muon",
]  # those with a fused form


def parameters(seed=0):
    torch.manual_seed(seed)
    shapes = {
        "embed.weight": (11, 6),
        "blocks.0.mix.project.qkv.weight": (18, 6),
        "blocks.0.mix.project.qkv.bias": (18,),
        "blocks.1.feed.up.weight": (7, 6),
        "blocks.1.feed.down.weight": (6, 7),
        "blocks.1.norm.weight": (6,),
        "kernel": (2, 3, 4),
        "scale": (),
    }
    return {name: nn.Parameter(torch.randn(shape, dtype=torch.float64)) for name, shape in shapes.items()}


ROWS = {"blocks.0.mix.project.qkv.weight": ((1, 1, 1), 2)}


def optimizer(trained, spec="adamw", weight_decay=0.1, clip_grad_norm=0.0, **more):
    return Optimizer(
        trained,
        spec,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=weight_decay,
        clip_grad_norm=clip_grad_norm,
        rows=ROWS,
        **more,
    )


def give_gradients(trained, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in trained.values():
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def copies(trained):
    return {name: nn.Parameter(p.detach().clone()) for name, p in trained.items()}


# -- the formulas, one parameter at a time -----------------------------------------------------------------------------


def adamw_reference(w, g, n, state, rate, weight_decay, name):
    m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    v = state["v"] = 0.98 * state.get("v", 0) + 0.02 * g * g
    return w - rate * weight_decay * w - rate * (m / (1 - 0.9**n)) / ((v / (1 - 0.98**n)).sqrt() + 1e-9)


def adam_reference(w, g, n, state, rate, weight_decay, name):
    return adamw_reference(w, g + weight_decay * w, n, state, rate, 0.0, name)


def sgd_reference(w, g, n, state, rate, weight_decay, name, momentum=0.9, nesterov=False):
    pull = g + weight_decay * w
    m = state["m"] = momentum * state.get("m", 0) + pull
    return w - rate * (pull + momentum * m if nesterov else m)


def orthogonal_reference(x):
    """The five products on singular values, where they are a polynomial."""
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u * s @ vt


def muon_reference(w, g, n, state, rate, weight_decay, name, nesterov=True):
    if "blocks" not in name or w.ndim != 2:
        return adamw_reference(w, g, n, state, rate, weight_decay, name)
    m = state["m"] = 0.95 * state.get("m", torch.zeros_like(w)) + 0.05 * g
    ahead = 0.05 * g + 0.95 * m if nesterov else m
    step = torch.empty_like(w)
    kinds = [range(len(w))]
    if "qkv" in name:  # three groups of (query, key, value), two rows each
        kinds = [[group * 6 + kind * 2 + row for group in range(3) for row in range(2)] for kind in range(3)]
    for rows in kinds:
        step[rows] = orthogonal_reference(ahead[rows]) * 0.2 * math.sqrt(max(len(rows), w.shape[1]))
    return w - rate * weight_decay * w - rate * step


def adafactor_reference(w, g, n, state, rate, weight_decay, name):
    keep = 1 - n**-0.8
    if w.ndim >= 2:
        row = state["row"] = keep * state.get("row", 0) + (1 - keep) * (g * g).mean(-1, keepdim=True)
        column = state["column"] = keep * state.get("column", 0) + (1 - keep) * (g * g).mean(-2, keepdim=True)
        v = row * column / row.mean(-2, keepdim=True)
    else:
        v = state["v"] = keep * state.get("v", 0) + (1 - keep) * g * g
    u = g / v.sqrt()
    u = u / max(1.0, u.square().mean().sqrt().item())
    alpha = min(rate, n**-0.5) * max(1e-3, w.square().mean().sqrt().item())
    return w - rate * weight_decay * w - alpha * u


REFERENCES = {
    "adamw": adamw_reference,
    "adam": adam_reference,
    "muon": muon_reference,
    "muon(nesterov=False)": lambda *a: muon_reference(*a, nesterov=False),
    "adafactor": adafactor_reference,
    "sgd": sgd_reference,
    "sgd(nesterov=True)": lambda *a: sgd_reference(*a, nesterov=True),
    "sgd(momentum=0)": lambda *a: sgd_reference(*a, momentum=0),
}


@pytest.mark.parametrize("rate", [0.03, 2.0])  # the second is more than adafactor's 1/√n from the first update on
@pytest.mark.parametrize("spec", RULES)
def test_a_few_updates_are_those_of_the_formula_written_out(spec, rate):
    follows(optimizer, spec, rate)


@pytest.mark.parametrize("spec", PLAIN)
def test_without_a_fused_kernel_the_updates_are_the_same(spec, monkeypatch):
    monkeypatch.setattr(adamw, "has_fused", lambda device: False)
    monkeypatch.setattr(sgd, "has_fused", lambda device: False)
    follows(optimizer, spec, 0.03)


def follows(make, spec, rate):
    actual = parameters()
    references = {name: p.detach().clone() for name, p in actual.items()}
    states = {name: {} for name in actual}
    optimising = make(actual, spec)
    for n in (1, 2, 3):
        give_gradients(actual, n)
        for name, p in actual.items():
            decay = 0.1 if p.ndim >= 2 else 0.0
            references[name] = REFERENCES[spec](references[name], p.grad, n, states[name], rate / n, decay, name)
        optimising.step(rate / n)
        for name, p in actual.items():
            torch.testing.assert_close(
                p.detach(), references[name], rtol=2e-6, atol=1e-7, msg=lambda m, name=name: name + m
            )
            assert p.grad is None


def test_fused_and_written_out_forms_describe_themselves(monkeypatch):
    assert optimizer(parameters()).describe() == "fused AdamW"
    assert optimizer(parameters(), "muon").describe() == "Muon for 3 matrices, fused AdamW for the rest"
    assert optimizer(parameters()).fused
    monkeypatch.setattr(adamw, "has_fused", lambda device: False)
    assert optimizer(parameters(), layer_decay=0.8).describe() == "AdamW, layer decay 0.8"
    assert not optimizer(parameters()).fused


def test_fused_adamw_is_torchs_to_the_bit():
    actual, references = parameters(), parameters()
    matrices, vectors = ([p for p in references.values() if (p.ndim >= 2) is want] for want in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, fused=True)
    optimising = optimizer(actual, clip_grad_norm=1.0)
    for n in range(1, 4):
        for trained in (actual, references):
            give_gradients(trained, n)
        nn.utils.clip_grad_norm_(references.values(), 1.0)
        for group in theirs.param_groups:
            group["lr"] = 0.1 / n
        optimising.step(0.1 / n)
        theirs.step()
    assert all(torch.equal(p, q) for p, q in zip(actual.values(), references.values(), strict=True))


def test_adafactor_is_torchs():
    actual, references = parameters(), parameters()
    optimising, theirs = (
        optimizer(actual, "adafactor", weight_decay=0.0),
        torch.optim.Adafactor(references.values(), weight_decay=0.0),
    )
    for n in range(1, 4):
        for trained in (actual, references):
            give_gradients(trained, n)
        theirs.param_groups[0]["lr"] = 0.02 * n
        optimising.step(0.02 * n)
        theirs.step()
    for name, p in actual.items():
        torch.testing.assert_close(p, references[name], rtol=1e-6, atol=1e-7, msg=lambda m, name=name: name + m)


def test_orthogonal_matrices_have_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((3, 8, 8), (2, 5, 12), (2, 12, 5)):
        values = torch.linalg.svdvals(muon.orthogonalize(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_a_fused_matrix_is_split_by_projection_and_put_together_again():
    x = torch.arange(2 * 4 * 3.0).view(-1, 1) * torch.ones(1, 5)  # two groups: two queries, a key and a value, depth 3
    rows = ((2, 1, 1), 3)
    q, k, v = muon.split_fused(x, rows)
    assert q[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17]
    assert k[:, 0].tolist() == [6, 7, 8, 18, 19, 20]
    assert v[:, 0].tolist() == [9, 10, 11, 21, 22, 23]
    assert torch.equal(muon.join_fused([q, k, v], rows), x)


def test_projections_are_those_that_the_model_computes():
    from regard.attention.multihead import MultiHeadAttention

    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"self": MultiHeadAttention(12, 4, kv_heads=2, bias=False), "cross": MultiHeadAttention(12, 4, cross=True)}
    )
    rows = muon.fused_projections(model)
    assert rows.keys() == {"self.project.qkv.weight", "cross.project.kv.weight"}
    x = torch.randn(1, 5, 12)
    weights = dict(model.named_parameters())
    maps = muon.split_fused(weights["self.project.qkv.weight"], rows["self.project.qkv.weight"])
    for heads, w in zip(model["self"].project(x), maps, strict=True):
        torch.testing.assert_close(heads.transpose(1, 2).flatten(2), x @ w.T)
    project = model["cross"].project
    maps = muon.split_fused(project.kv.weight, rows["cross.project.kv.weight"])
    biases = muon.split_fused(project.kv.bias[:, None], rows["cross.project.kv.weight"])
    for heads, w, b in zip(project.project_kv(x), maps, biases, strict=True):
        torch.testing.assert_close(heads.transpose(1, 2).flatten(2), x @ w.T + b[:, 0])


def test_muon_needs_blocks():
    with pytest.raises(BadInput, match="use adamw"):
        Optimizer({"embed.weight": nn.Parameter(torch.zeros(2, 2))}, "muon")


def test_an_unknown_rule_or_argument_offers_the_nearest():
    with pytest.raises(UnknownName, match="adafactor"):
        optimizer(parameters(), "adafactr")
    with pytest.raises(UnknownName, match="momentum"):
        optimizer(parameters(), "muon(momentun=0.9)")


def test_no_trainable_parameter_raises():
    with pytest.raises(BadInput, match="nothing to train"):
        Optimizer({"w": nn.Parameter(torch.zeros(2), requires_grad=False)})


# -- what is left out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("spec", RULES)
def test_an_update_whose_gradient_is_not_finite_leaves_all_as_it_was(spec, bad, after, fused, monkeypatch):
    if not fused:
        monkeypatch.setattr(adamw, "has_fused", lambda device: False)
        monkeypatch.setattr(sgd, "has_fused", lambda device: False)
    actual, references = parameters(), parameters()
    left_out, never_given = optimizer(actual, spec, clip_grad_norm=1.0), optimizer(references, spec, clip_grad_norm=1.0)
    for n in range(after):
        for trained, one in ((actual, left_out), (references, never_given)):
            give_gradients(trained, n)
            assert float(one.step(0.1)[1]) == 0
    give_gradients(actual, 7)
    actual["blocks.1.feed.up.weight"].grad[2, 3] = bad
    norm, lost = left_out.step(0.1)
    assert float(lost) == 1
    assert not math.isfinite(float(norm))
    for n in range(2):  # at once, and after one more update
        assert all(torch.equal(actual[name], references[name]) for name in actual)
        there, here = left_out.tensors(), never_given.tensors()
        assert all(torch.equal(there[name], here[name]) for name in here)
        for trained, one in ((actual, left_out), (references, never_given)):
            give_gradients(trained, 8 + n)
            one.step(0.1)


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", RULES)
def test_state_written_into_a_new_optimizer_resumes_to_the_bit(spec):
    actual = parameters()
    first = optimizer(actual, spec)
    names = list(first.tensors())
    assert all(float(x.abs().sum()) == 0 for x in first.tensors().values())  # there from the start
    for n in range(3):
        give_gradients(actual, n)
        first.step(0.1)
    assert list(first.tensors()) == names
    again = copies(actual)
    second = optimizer(again, spec)
    for name, x in second.tensors().items():
        x.copy_(first.tensors()[name])
    for trained, one in ((actual, first), (again, second)):
        for n in range(3):
            give_gradients(trained, 10 + n)
            one.step(0.1)
    assert all(torch.equal(actual[name], again[name]) for name in actual)
    assert all(torch.equal(x, second.tensors()[name]) for name, x in first.tensors().items())


def test_state_is_named_after_its_parameter_and_a_tied_one_is_there_once():
    w = nn.Parameter(torch.zeros(3, 2))
    trained = {"embed.weight": w, "head.weight": w, "frozen": nn.Parameter(torch.zeros(2), requires_grad=False)}
    assert list(optimizer(trained).tensors()) == [
        f"moments/embed.weight/{x}" for x in ("step", "exp_avg", "exp_avg_sq")
    ]
    assert list(optimizer(trained, "adafactor").tensors()) == [
        f"moments/embed.weight/{x}" for x in ("step", "row", "column")
    ]


@pytest.mark.parametrize("spec", RULES)
def test_a_parameter_without_a_gradient_stays(spec):
    trained = parameters()
    was = trained["embed.weight"].detach().clone()
    give_gradients(trained, 1)
    trained["embed.weight"].grad = None
    optimizer(trained, spec).step(0.1)
    assert torch.equal(trained["embed.weight"], was)


# -- clipping and rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_grad_norm", [1.0, 100.0])
def test_a_gradient_is_clipped_and_the_unclipped_norm_returned(clip_grad_norm):
    trained = {"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(1, 1))}
    trained["a"].grad, trained["b"].grad = torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])
    norm, lost = optimizer(trained, "sgd(momentum=0)", clip_grad_norm=clip_grad_norm, weight_decay=0.0).step(1.0)
    assert float(norm) == pytest.approx(13)
    assert float(lost) == 0
    moved = torch.cat([trained["a"], trained["b"][0]]).detach().norm()
    assert float(moved) == pytest.approx(min(clip_grad_norm, 13.0), rel=1e-5)


def test_norm_is_torchs():
    trained = parameters()
    give_gradients(trained, 0)
    gradients = [p.grad for p in trained.values()]
    assert torch.equal(total_norm(gradients), nn.utils.get_total_norm(gradients))


def test_layer_wise_decay_gives_the_head_the_full_rate_and_the_embedding_the_least():
    names = ["embed.weight", "positions.table", "encoder.blocks.0.a", "encoder.blocks.2.a", "encoder.norm.weight"]
    names += ["decoder.blocks.0.a", "decoder.blocks.1.b.blocks.7.c", "decoder.norm.weight", "head.weight"]
    assert layer_factors(names, 0.5) == {
        "embed.weight": 0.5**4,
        "positions.table": 0.5**4,
        "encoder.blocks.0.a": 0.5**3,
        "encoder.blocks.2.a": 0.5,
        "encoder.norm.weight": 1,
        "decoder.blocks.0.a": 0.5**2,
        "decoder.blocks.1.b.blocks.7.c": 0.5,
        "decoder.norm.weight": 1,
        "head.weight": 1,
    }
    assert set(layer_factors(names, 1.0).values()) == {1.0}


def test_layer_wise_decay_counts_the_blocks_of_stages_through():
    names = ["stem.embed.weight", "stem.stages.1.blocks.0.a", "prefix_tokens", "embed_norm.weight", "head.weight"]
    names += ["stages.0.blocks.0.a", "stages.0.blocks.1.a", "stages.1.merge.norm.weight", "stages.1.blocks.0.a"]
    names += ["head.transform.weight", "stages.2.0.a", "stages.2.1.mix.positions.tables.0"]
    found = {name: round(math.log2(factor)) for name, factor in layer_factors(names, 2.0).items()}
    assert found == {
        **dict.fromkeys(["stem.embed.weight", "stem.stages.1.blocks.0.a", "prefix_tokens", "embed_norm.weight"], 6),
        "stages.0.blocks.0.a": 5,
        "stages.0.blocks.1.a": 4,
        "stages.1.merge.norm.weight": 3,
        "stages.1.blocks.0.a": 3,
        "stages.2.0.a": 2,
        "stages.2.1.mix.positions.tables.0": 1,
        "head.weight": 0,
        "head.transform.weight": 0,
    }


class Spares(nn.Module):
    no_weight_decay = ("table",)

    def __init__(self):
        super().__init__()
        self.table, self.tabled = nn.ParameterList([torch.ones(2, 3)]), nn.Linear(3, 3)
        self.other = nn.Parameter(torch.ones(3, 2))


def test_what_a_part_spares_does_not_decay_and_is_no_matrix_for_muon():
    model = nn.ModuleDict({"blocks": nn.ModuleList([Spares()])})
    assert parameters_without_decay(model) == {"blocks.0.table.0"}
    for spec in RULES:
        model = nn.ModuleDict({"blocks": nn.ModuleList([Spares()])})
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer(
            dict(model.named_parameters()), spec, weight_decay=0.5, no_decay=parameters_without_decay(model)
        ).step(0.1)
        moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert moved == {"blocks.0.other", "blocks.0.tabled.weight"}
    part = Optimizer(dict(model.named_parameters()), "muon", no_decay=parameters_without_decay(model))
    assert "Muon for 2 matrices" in part.describe()


@pytest.mark.parametrize("spec", RULES)
def test_layer_wise_decay_scales_the_first_step_of_each_layer(spec):
    moved = {}
    for layer_decay in (1.0, 0.5):
        trained = parameters()
        was = {name: p.detach().clone() for name, p in trained.items()}
        give_gradients(trained, 3)
        optimizer(trained, spec, weight_decay=0.0, layer_decay=layer_decay).step(0.01)
        moved[layer_decay] = {name: p.detach() - was[name] for name, p in trained.items()}
    for name, factor in layer_factors(list(moved[1.0]), 0.5).items():
        torch.testing.assert_close(moved[0.5][name], factor * moved[1.0][name], rtol=1e-6, atol=1e-12)


# -- does it learn? ----------------------------------------------------------------------------------------------------

RATES = {"adamw": 0.1, "adam": 0.1, "muon": 0.3, "adafactor": 0.3, "sgd": 0.1}


@pytest.mark.parametrize("spec", list(OPTIMIZERS))
def test_a_convex_problem_is_solved(spec):
    """Least squares with a weight inside a block, so that each rule has its own kind of parameter."""
    torch.manual_seed(0)
    x, true = torch.randn(64, 6), torch.randn(6, 5)
    trained = {"blocks.0.weight": nn.Parameter(torch.randn(6, 5)), "bias": nn.Parameter(torch.ones(5))}
    optimising = Optimizer(trained, spec)
    for n in range(300):
        loss = (x @ trained["blocks.0.weight"] + trained["bias"] - x @ true).square().mean()
        loss.backward()
        optimising.step(RATES[spec] * (1 - n / 300))
    assert loss.item() < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("spec", list(OPTIMIZERS))
def test_a_small_transformer_learns_to_reverse(spec):
    from regard.models.transformer import Config, Transformer

    torch.manual_seed(1)
    model = Transformer(Config(vocab=12, width=32, heads=2, ffn=64, encoder_layers=1, decoder_layers=1, dropout=0.0))
    optimising = Optimizer(dict(model.named_parameters()), spec, clip_grad_norm=1.0, rows=muon.fused_projections(model))
    rate = {"adamw": 3e-3, "adam": 3e-3, "muon": 3e-3, "adafactor": 0.03, "sgd": 0.1}[spec]
    losses = []
    for n in range(120):
        source = torch.randint(4, 12, (32, 5))
        target = torch.cat([torch.full((32, 1), 1), source.flip(1)], dim=1)
        logits = model(source, target[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        optimising.step(rate * min(1, (n + 1) / 20))
        losses.append(loss.item())
    assert sum(losses[-10:]) / 10 < 0.7 * losses[0]


# -- spread over processes ---------------------------------------------------------------------------------------------


@pytest.mark.long  # by default tests/training/test_ranks.py trains with two processes
@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_updates_equal_plain_ones(ranks):
    message = together(ranks, "tests.training.sharded_updates")
    assert message.count("equal") == len(OPTIMIZERS)
