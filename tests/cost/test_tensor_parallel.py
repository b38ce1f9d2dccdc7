"""Tensor parallelism: slices equal those of training, and sum to the full model."""

import pytest
import torch

from regard.core.errors import BadInput, Unsupported
from regard.cost import tensor_parallel
from regard.cost.meta_model import InputShape, build, fake_tensors, resolve_config
from regard.cost.passes import ExecutionPlan, training_step

MODELS = {
    "gpt": ["vocab=300", "width=64", "heads=4", "layers=2", "length=32"],
    "transformer": ["width=64", "heads=4", "ffn=96", "encoder_layers=1", "decoder_layers=2", "feedforward=swiglu"],
}


@pytest.mark.parametrize("name", MODELS)
def test_slices_equal_those_of_training(name, monkeypatch):
    from torch.distributed.tensor.parallel import ColwiseParallel

    from regard.training.parallel import parallelize

    applied = {}

    class World:
        tensor_parallel, mesh = 2, {"tensor": None}

    monkeypatch.setattr(parallelize, "parallelize_module", lambda model, mesh, plan: applied.update(plan))
    model = build(resolve_config(name, None, MODELS[name]))
    parallelize.apply_tensor_parallel(model, World)
    expected = {part: "columns" if isinstance(how, ColwiseParallel) else "rows" for part, how in applied.items()}
    assert tensor_parallel.slicing_plan(model, 2) == expected


@pytest.mark.parametrize("spec", ["disagreement", "talking_heads", "multihead(projection='collaborative')"])
def test_heads_that_know_one_another_are_not_cut(spec):
    from regard.training.parallel.parallelize import apply_tensor_parallel

    class World:
        tensor_parallel, mesh = 2, {"tensor": None}

    model = build(resolve_config("gpt", None, [*MODELS["gpt"], f"attention={spec}"]))
    for cut in (lambda: apply_tensor_parallel(model, World), lambda: tensor_parallel.slicing_plan(model, 2)):
        with pytest.raises(Unsupported, match="may mix"):
            cut()


@pytest.mark.parametrize("name", MODELS)
def test_slices_sum_to_the_full_model(name):
    config, shape = resolve_config(name, None, MODELS[name]), InputShape(batch=2, length=16)
    full, part = (
        training_step(config, shape, ExecutionPlan()),
        training_step(config, shape, ExecutionPlan(tensor_parallel=2)),
    )
    assert part.unsliced_parameters == full.total
    inside = [p for p in full.parameters if ".blocks." in p and not p.endswith("norms")]
    for name_ in full.parameters:
        if name_ not in inside:
            assert part.parameters[name_] == full.parameters[name_]  # on every device
    biases = sum(full.parameters[p] for p in inside) - 2 * sum(part.parameters[p] for p in inside)
    assert -biases < 0.02 * full.total  # those of the rows are on every device
    for name_ in inside:
        assert part.work[name_] * 2 == full.work[name_]
    assert {k: 2 * v for k, v in part.maps.items()} == full.maps


def test_all_reduce_bytes():
    config, shape = resolve_config("gpt", None, MODELS["gpt"]), InputShape(batch=2, length=16)
    notes = training_step(config, shape, ExecutionPlan("float32", tensor_parallel=2)).notes
    stream = 2 * 16 * 64 * 4  # bytes of the residual path
    assert notes["sums forward"] == notes["sums backward"] == 2 * 2 * stream  # twice in each of two blocks
    assert notes["sums"] == 8
    half = training_step(config, shape, ExecutionPlan("bfloat16", tensor_parallel=2)).notes
    assert half["sums forward"] == notes["sums forward"] / 2


def test_sliced_feedforward_outputs_sum_to_the_full_output():
    """With matching slices of the weights, the outputs of two sliced feed-forward blocks sum to the full output."""
    torch.manual_seed(0)
    from regard.blocks.feedforward import ReluFeedForward

    full = ReluFeedForward(8, 12)
    parts = []
    for rank in range(2):
        part = ReluFeedForward(8, 12)
        slicing_ = slice(6 * rank, 6 * rank + 6)
        holder = torch.nn.ModuleDict({"feed": part})
        tensor_parallel.slice_matrices(holder, 2)
        part.up.load_state_dict({"weight": full.up.weight[slicing_], "bias": full.up.bias[slicing_]})
        part.down.load_state_dict({"weight": full.down.weight[:, slicing_], "bias": full.down.bias / 2})
        parts.append(part)
    x = torch.randn(3, 8)
    assert torch.allclose(parts[0](x) + parts[1](x), full(x), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings", "ranks", "error", "message"),
    [
        ("gpt", ["heads=4", "width=64"], 3, BadInput, "does not divide the 4"),
        ("transformer", ["ffn=10", "width=64", "heads=4"], 4, BadInput, "does not divide the 10 units"),
        ("gpt", ["positions=alibi", "width=64", "heads=4"], 2, Unsupported, "a bias for all of them"),
        ("gpt", ["qk_norm=rms", "width=64", "heads=4"], 2, Unsupported, "share the norms"),
        ("rnnsearch", [], 2, Unsupported, "no heads"),
    ],
)
def test_unsliceable_model_is_refused(name, settings, ranks, error, message):
    with fake_tensors(), pytest.raises(error, match=message):
        tensor_parallel.slicing_plan(build(resolve_config(name, "tiny", settings)), ranks)
