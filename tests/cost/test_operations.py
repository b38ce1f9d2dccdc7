"""Multiply-adds: against torch's counter on real tensors, and against formulas."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import flop_registry

from regard.cost.estimate import Scenario, estimate
from regard.cost.meta_model import InputShape, parse_model_name, resolve_config
from regard.cost.passes import ExecutionPlan, forward_pass, training_step

from .real import Real

# Without dropout: a CPU has no fused attention with it and takes the long way, of four products back and not five.
STILL = ["dropout=0", "attention_dropout=0"]
MODELS = {
    "transformer:tiny": ([*STILL], InputShape(batch=3, source=17, target=13)),
    "transformer:small": (["norm=pre", "feedforward=swiglu", "kv_heads=2", *STILL], InputShape(batch=2, length=20)),
    "gpt:tiny": (["vocab=300", *STILL], InputShape(batch=3, length=64)),
    "bert:tiny": (["vocab=300", "head=classes(3)", *STILL], InputShape(batch=3, length=64)),
    "gpt:char": (["vocab=65", "positions=rotary", "norm_kind=rms", *STILL], InputShape(batch=1, length=64)),
    "gru_to_attention:tiny": (["vocab=65", "variant=gated"], InputShape(batch=2, length=9)),
    "rnnsearch:tiny": (["dropout=0"], InputShape(batch=2, source=7, target=5)),
    "convs2s:tiny": (["dropout=0"], InputShape(batch=2, source=7, target=5)),
    "bytenet:tiny": (["dropout=0"], InputShape(batch=2, source=7, target=5)),
    "handwriting:tiny": (["vocab=11"], InputShape(batch=2, length=9)),
    "neural_gpu:tiny": (["vocab=7"], InputShape(batch=2, source=3, target=4)),
}
SHORT = ("transformer:tiny", "gpt:tiny", "bert:tiny", "rnnsearch:tiny", "convs2s:tiny")
CASES = [word if word in SHORT else pytest.param(word, marks=pytest.mark.long) for word in MODELS]
COUNTED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry


@pytest.mark.parametrize("word", CASES)
def test_forward_operations_equal_torch(word):
    settings, shape = MODELS[word]
    config = resolve_config(*parse_model_name(word), settings)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # older counters do not know the CPU's fused attention
        counted = Real(config, shape, ExecutionPlan("float32")).operations(backward=False)
    assert forward_pass(config, shape, ExecutionPlan("float32")).operations("forward") == pytest.approx(
        counted, rel=0.01
    )


@pytest.mark.skipif(not COUNTED, reason="this torch does not count the CPU's fused attention")
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
@pytest.mark.parametrize("word", CASES)
def test_training_operations_equal_torch(word, precision):
    settings, shape = MODELS[word]
    config = resolve_config(*parse_model_name(word), settings)
    counted = Real(config, shape, ExecutionPlan(precision)).operations()
    found = training_step(config, shape, ExecutionPlan(precision))
    assert found.operations("forward", "loss", "backward") == pytest.approx(counted, rel=0.01)


@pytest.mark.skipif(not COUNTED, reason="this torch does not count the CPU's fused attention")
def test_only_masked_tokens_are_predicted():
    shape, way = InputShape(batch=3, length=64), ExecutionPlan("float32")
    config = resolve_config("bert", "tiny", ["vocab=300", *STILL])  # all words are guessed where nothing is learned
    found = training_step(config, shape, way)
    assert found.operations("forward", "loss", "backward") == pytest.approx(
        Real(config, shape, way).operations(), rel=0.01
    )
    width, places = 128, 3 * 10  # 15 % of 64
    assert found.operations("loss") == pytest.approx(2 * 3 * places * width * 300, rel=0.01)  # three products
    assert forward_pass(config, shape, way).operations("forward") > found.operations("forward")


@pytest.mark.skipif(not COUNTED, reason="this torch does not count the CPU's fused attention")
def test_recomputation_operations_equal_torch():
    settings, shape = MODELS["gpt:tiny"]
    config, way = resolve_config("gpt", "tiny", settings), ExecutionPlan("float32", recompute=True)
    again = training_step(config, shape, way).operations("forward", "loss", "backward")
    assert again == pytest.approx(Real(config, shape, way).operations(), rel=0.01)
    assert again > training_step(config, shape, ExecutionPlan("float32")).operations("forward", "loss", "backward")


def test_gpt_operations_equal_the_formula():
    """Per token: one multiply-add per weight, and N per channel for scores and for values."""
    config = resolve_config("gpt", "tiny", ["vocab=300", *STILL])
    n, width, layers = 64, config.width, config.layers
    weights = layers * 12 * width * width + config.vocab * width
    maps = layers * 2 * n * width
    found = forward_pass(config, InputShape(batch=2, length=n), ExecutionPlan())
    assert found.operations("forward") == 2 * (2 * n) * (weights + maps)
    assert sum(found.work.values()) == found.operations("forward")
    trained = training_step(config, InputShape(batch=2, length=n), ExecutionPlan())
    assert trained.operations("forward", "loss", "backward") == 2 * (2 * n) * (3 * weights + 3.5 * maps)


def test_attention_map_entries():
    config = resolve_config("transformer", "tiny", [])
    found = forward_pass(config, InputShape(batch=3, source=17, target=13), ExecutionPlan()).maps
    each = 3 * config.heads
    assert found == {
        "encoder.blocks.*.mix": each * 17 * 17 * config.encoder_layers,
        "decoder.blocks.*.mix": each * 13 * 13 * config.decoder_layers,
        "decoder.blocks.*.cross": each * 13 * 17 * config.decoder_layers,
    }
    assert forward_pass(
        resolve_config("rnnsearch", "tiny", []), InputShape(2, source=7, target=5), ExecutionPlan()
    ).maps == {"decoder.aligner": 2 * 5 * 7}


def test_views_move_nothing_and_products_move_their_operands():
    from regard.cost.meter import Meter
    from regard.cost.op_log import Kernel

    a, b = torch.zeros(4, 6), torch.zeros(6, 5)
    meter = Meter()
    with meter, meter.during("here"):
        c = a.view(2, 12).view(4, 6) @ b
        c.t().add_(1)
    assert meter.op_log.kernels()["here"] == {
        Kernel("product", 2 * 4 * 6 * 5, 4 * (24 + 30 + 20)): 1,
        Kernel("pointwise", 0, 4 * (20 + 20)): 1,
    }


def test_moe_compute_counts_active_experts_and_memory_counts_all():
    """Two of eight experts of half the width: the operations of the dense model plus the router's."""
    shape, settings = InputShape(batch=2, length=32), ["vocab=300", "layers=6", "bias=false"]
    dense = estimate(Scenario(resolve_config("gpt", "tiny", [*settings, "ffn=256", "feedforward=swiglu"]), shape))
    mixture = estimate(
        Scenario(
            resolve_config("gpt", "tiny", [*settings, "ffn=128", "feedforward=moe(num_experts=8, top_k=2)"]), shape
        )
    )
    router = 6 * 128 * 8
    assert dense.active == dense.parameters
    assert mixture.active == dense.parameters + router
    assert mixture.parameters == dense.parameters + router + 6 * 6 * (3 * 128 * 128)
    passes = (cost.passes.operations("forward") for cost in (mixture, dense))
    assert next(passes) - next(passes) == 2 * 2 * 32 * router
