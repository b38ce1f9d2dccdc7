"""Experts: three forms of one product, tokens that do not know one another, and a loss that keeps all of them busy."""

import copy

import pytest
import torch

from regard.blocks import FEEDFORWARDS
from regard.blocks.feedforward import FeedForward
from regard.blocks.mixture_of_experts import MixtureOfExperts, moe_layers
from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.core.layer_state import LayerState, PassState
from regard.core.spec import build_part
from regard.models import build

KINDS = [name for name in FEEDFORWARDS if name != "moe"]


def part(n=5, top_k=2, **settings):
    made = build_part(FEEDFORWARDS, f"moe({n}, top_k={top_k})", "feed-forward", width=6, hidden=7)
    assert isinstance(made, MixtureOfExperts)
    return MixtureOfExperts(n, top_k, **settings, width=6, hidden=7)


def run(module, x):
    """Output and all gradients, the input's too; the experts' own loss counts."""
    x = x.clone().requires_grad_()
    state = LayerState(0)
    out = module(x, state)
    (out.square().sum() + 3 * state.losses["balance"]).backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    module.zero_grad()
    return {"out": out.detach(), "x": x.grad, **grads}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("expert", ["swiglu", "relu"])
@pytest.mark.parametrize("top_k", [1, 3, 5])
def test_sorted_tokens_get_what_every_expert_on_every_token_gives(double, top_k, expert, bias):
    module, x = part(top_k=top_k, expert=expert, bias=bias, z_loss=0.1), torch.randn(3, 11, 6)
    module.implementation = "dense"
    expected = run(module, x)
    assert set(expected) == {"out", "x", *(name for name, _ in module.named_parameters())}
    module.implementation = "loop"
    for name, value in run(module, x).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("bias", [True, False])
def test_one_kernel_for_all_groups_gives_the_same(bias):
    module, x = MixtureOfExperts(5, 2, implementation="dense", width=16, hidden=24, bias=bias), torch.randn(3, 11, 16)
    expected = run(module, x)
    module.implementation = "grouped"
    for name, value in run(module, x).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("expert", KINDS)
def test_one_expert_is_its_feed_forward(double, expert):
    module, x = part(n=1, top_k=1, expert=expert), torch.randn(4, 6)
    alone: FeedForward = build_part(FEEDFORWARDS, expert, "feed-forward", width=6, hidden=7)
    with torch.no_grad():
        for name, p in alone.named_parameters():
            p.copy_(dict(module.named_parameters())[name].view_as(p))
    torch.testing.assert_close(module(x), alone(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("implementation", ["dense", "loop"])
def test_a_tokens_experts_do_not_depend_on_its_company(double, implementation):
    module, x = part(implementation=implementation).eval(), torch.randn(9, 6)
    whole = module(x)
    for i in range(9):
        torch.testing.assert_close(module(x[i : i + 1]), whole[i : i + 1], rtol=1e-12, atol=1e-12)
    crowd = torch.cat([x, x[:1].expand(50, 6)])  # one expert is overrun: nobody is sent away
    torch.testing.assert_close(module(crowd)[:9], whole, rtol=1e-12, atol=1e-12)


def test_no_token_is_fine_too():
    module = part()
    assert module(torch.zeros(2, 0, 6)).shape == (2, 0, 6)


def balance_and_load(module, x):
    state = LayerState(0)
    module(x, state)
    return state.losses["balance"], state.published["expert_load"]


# -- balance -----------------------------------------------------------------------------------------------------------


def certain(module, tokens):
    """A router that sends token i, a unit vector, to expert tokens[i] and to no other."""
    with torch.no_grad():
        module.router.weight.zero_()
        for i, e in enumerate(tokens):
            module.router.weight[e, i] = 100.0
    return torch.eye(6)[: len(tokens)]


def test_balance_is_one_where_all_are_even_and_e_where_one_has_all(double):
    module = part(n=6, top_k=1)
    balance, load = balance_and_load(module, certain(module, range(6)))
    torch.testing.assert_close(balance, torch.ones(()))
    torch.testing.assert_close(load, torch.full((6,), 1 / 6))
    balance, load = balance_and_load(module, certain(module, [2] * 6))
    torch.testing.assert_close(balance, torch.full((), 6.0))
    assert load.tolist() == [0, 0, 1, 0, 0, 0]
    with torch.no_grad():
        module.router.weight.zero_()  # it has no preference
    torch.testing.assert_close(balance_and_load(module, torch.randn(7, 6))[0], torch.ones(()))


def test_balance_is_that_of_its_formula(double):
    module, x = part(n=4, top_k=2, z_loss=0.5), torch.randn(10, 6)
    balance, _ = balance_and_load(module, x)
    logits = x @ module.router.weight.T
    p = logits.softmax(-1)
    f = torch.zeros(4)
    for row in p:
        for e in row.topk(2).indices:
            f[e] += 1 / 20
    expected = 4 * sum(f[e] * p[:, e].mean() for e in range(4)) + 0.5 * logits.exp().sum(-1).log().square().mean()
    torch.testing.assert_close(balance, expected, rtol=1e-12, atol=1e-12)


def test_going_down_its_gradient_wakes_the_idle(double):
    module, x = part(n=4, top_k=1), torch.randn(200, 6) + 1
    with torch.no_grad():
        module.router.weight[3] += 2.0  # all that is on average positive goes there
    before = float(balance_and_load(module, x)[1].max())
    for _ in range(200):
        (gradient,) = torch.autograd.grad(balance_and_load(module, x)[0], [module.router.weight])
        with torch.no_grad():
            module.router.weight -= 0.5 * gradient
    assert before > 0.9
    assert float(balance_and_load(module, x)[1].max()) < 0.4


def test_losses_of_all_layers_reach_the_caller_of_the_model():
    model = build("gpt", size="tiny", vocab=9, feedforward="moe(num_experts=4)")
    pass_state = PassState()
    model(torch.randint(9, (2, 5)), pass_state=pass_state)
    assert len(pass_state.losses("balance")) == len(pass_state.collect("expert_load")) == model.config.layers
    assert pass_state.weighted_loss({"balance": 0.5}).requires_grad


def test_a_copy_is_one_of_the_weights():
    module, x = part(), torch.randn(3, 6)
    out = module(x)
    again = copy.deepcopy(module)  # what a pass left behind cannot be copied
    torch.testing.assert_close(again(x), out)


# -- capacity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["dense", "loop"])
def test_capacity_drops_the_last_tokens_of_an_expert_in_training_alone(double, implementation):
    module = part(n=3, top_k=1, capacity_factor=1.0, implementation=implementation)
    x = certain(module, [0, 0, 0, 1, 0, 0])  # five for one expert that takes two
    free = part(n=3, top_k=1, implementation=implementation)
    free.load_state_dict(module.state_dict())
    out, whole = module.train()(x), free(x)
    kept = [0, 1, 3]
    torch.testing.assert_close(out[kept], whole[kept])
    assert not out[[2, 4, 5]].any()
    torch.testing.assert_close(module.eval()(x), whole)
    module.capacity_factor = 2.5  # room for five
    torch.testing.assert_close(module.train()(x), whole)


def test_first_choices_come_before_second_ones(double):
    module = part(n=2, top_k=2, capacity_factor=0.5)  # one place for every two choices of three tokens: 2 each
    x = torch.eye(6)[:3]
    with torch.no_grad():
        module.router.weight.zero_()
        module.router.weight[0, :2], module.router.weight[1, 2] = 1.0, 1.0
    weights, chosen, _ = module.train().route(x)
    assert chosen[:, 0].tolist() == [0, 0, 1]
    assert (weights > 0).tolist() == [[True, True], [True, False], [True, False]]


# -- in a model --------------------------------------------------------------------------------------------------------


def test_parameters_at_rest_are_counted(double):
    module = part(n=5, top_k=2)
    one = sum(p.numel() for p in build_part(FEEDFORWARDS, "swiglu", "feed-forward", width=6, hidden=7).parameters())
    assert sum(p.numel() for p in module.parameters()) == 5 * one + 5 * 6
    assert module.unused_parameters == 3 * one


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ("num_experts=2, top_k=3", BadInput, "from 1 to num_experts=2, got 3"),
        ("num_experts=2, top_k=0", BadInput, "at least 1"),
        ("capacity_factor=0.0", BadInput, "must be above 0"),
        ("expert='moe'", Unsupported, "not 'moe'"),
        ("expert='swiglo'", UnknownName, "swiglu"),
        ("top_ks=1", UnknownName, "did you mean 'top_k'"),
    ],
)
def test_what_cannot_be_is_refused(settings, error, said):
    with pytest.raises(error, match=said):
        build("gpt", size="tiny", vocab=9, feedforward=f"moe({settings})")


def test_fresh_experts_are_gpt2s():
    model = build("gpt", vocab=50, width=64, heads=4, layers=8, feedforward="moe(num_experts=4)")
    mixtures = moe_layers(model)
    assert len(mixtures) == 8
    for mixture in mixtures:
        for each, wanted in ((mixture.up, 0.02), (mixture.gate, 0.02), (mixture.down, 0.02 / 4)):
            assert float(each.weight.detach().std()) == pytest.approx(wanted, rel=0.05)
            assert each.bias.abs().max() == 0


@pytest.mark.long
def test_compiled_and_recomputed_passes_give_the_same_loss_and_gradients(python):
    """In a child process: dynamo cannot trace through the shape checks that tests switch on."""
    code = """
import torch
from regard.models import build
from regard.core.layer_state import PassState
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.training.parallel.parallelize import enable_gradient_checkpointing

tokens, targets = torch.randint(17, (2, 3, 8))
found = {}
for form, again, compiled in (("dense", 0, 0), ("loop", 1, 0), ("loop", 0, 1), ("grouped", 0, 1), ("grouped", 1, 1)):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = build("gpt", vocab=17, width=16, heads=2, layers=2, ffn=24, length=16, dropout=0.0, attention_dropout=0.0,
                  feedforward=f"moe(num_experts=4, implementation='{form}')")
    if again:
        enable_gradient_checkpointing(model)
    call = torch.compile(model, backend="aot_eager", fullgraph=form == "grouped" and not again) if compiled else model
    state = PassState()
    loss = call(tokens, targets=targets, loss=fused_linear_cross_entropy, pass_state=state)
    aux = torch.stack(state.losses("balance"))
    (loss + 10 * aux.sum()).backward()
    found[form, again, compiled] = [loss, aux, *(p.grad for p in model.parameters())]
first = found.pop(("dense", 0, 0))
for how, values in found.items():
    for a, b in zip(values, first, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda said: f"{how}: {said}")
print("equal")
"""
    assert python(code) == "equal\n"


@pytest.mark.gpu
def test_on_a_gpu_all_groups_go_through_one_kernel_in_bfloat16():
    module = MixtureOfExperts(8, 2, width=64, hidden=96, bias=False).cuda()
    x = torch.randn(4, 50, 64, device="cuda")
    results = []
    for implementation in ("auto", "dense"):
        module.implementation = implementation
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert implementation == "dense" or module._uses_grouped_mm(x)
            results.append(run(module, x))
    for name, value in results[0].items():
        scale = results[1][name].float().abs().max()
        assert (value.float() - results[1][name].float()).abs().max() < 0.03 * scale, name
