"""The pass state reaches every attention of every model, and what layers add to the loss reaches the task's total."""

import inspect

import pytest
import torch

import regard
from regard.attention.mechanisms import MECHANISMS
from regard.core.layer_state import PassState
from regard.core.shapes import pair
from regard.core.spec import config_class, resolve
from regard.models import MODELS
from regard.models.contract import DenseModel, ImageModel
from regard.tasks.base import SplitTask, call_with_state
from tests.models.published_attention import PublishedAttention

CLASSES = {name: resolve(MODELS, name, "model") for name in MODELS}
CONFIGS = {name: config_class(MODELS, name, "model").__dataclass_fields__ for name in MODELS}
ATTENTION = [name for name in MODELS if "attention" in CONFIGS[name] and name != "gru_to_attention"]
ALIGNERS = [name for name in MODELS if "aligner" in CONFIGS[name]]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "published", (PublishedAttention.__module__, "PublishedAttention"))


def build(name, **settings):
    torch.manual_seed(0)
    if "vocab" in CONFIGS[name]:
        settings["vocab"] = 11
    for dropout in ("dropout", "attention_dropout", "activation_dropout", "drop_path"):
        if dropout in CONFIGS[name]:
            settings[dropout] = 0.0
    return regard.build(name, size="tiny", **settings)


def inputs(model):
    """Return a small batch as the model's forward takes it."""
    parameters = list(inspect.signature(model.forward).parameters)
    if isinstance(model, (DenseModel, ImageModel)):
        return (torch.randn(2, model.config.channels, *pair(model.config.image_size)),)
    if parameters[:2] == ["images", "condition"]:
        return (torch.randint(model.config.levels, (2, model.config.channels, *pair(model.config.image_size))),)
    if hasattr(model, "palette"):
        return (torch.rand(2, model.config.channels, *pair(model.config.image_size)),)
    if parameters[:2] == ["images", "sizes"]:
        return torch.randn(2, model.config.backbone.channels, 64, 96), torch.tensor([[64, 96], [40, 50]])
    if parameters[:2] == ["images", "target"]:
        return torch.randn(2, 3, 32, 32), torch.randint(3, 11, (2, 4))
    if parameters[0] == "returns":
        steps = torch.arange(4).expand(2, 4)
        return torch.randn(2, 4), torch.randn(2, 4, 3), torch.randn(2, 4, 1), steps
    if parameters[0] == "points":
        return torch.randn(2, 5, 3), torch.randint(11, (2, 4))
    if parameters[0] == "nodes":
        return torch.randn(2, 5, model.config.input_dim), torch.randint(2, (2, 5, 5))
    if parameters[0] in ("elements", "vectors"):
        return (torch.randn(2, 5, model.config.input_dim),)
    if parameters[0] == "frames":
        target = (torch.randint(11, (2, 4)),) if "target" in parameters else ()
        return torch.randn(2, 40, model.config.input_dim), *target
    tokens = torch.randint(3, 11, (2, 6))
    return (tokens, torch.randint(3, 11, (2, 4))) if parameters[0] == "source" else (tokens,)


def attentions(model):
    return [name for name, module in model.named_modules() if isinstance(module, PublishedAttention)]


def test_the_table_is_covered():
    assert set(ATTENTION) >= {"transformer", "gpt", "t5", "bert", "vit", "deit", "cct", "swin", "swinv2", "mvit"}
    assert set(ALIGNERS) >= {"rnnsearch", "luong", "handwriting"}
    for name in ATTENTION + ALIGNERS:
        assert "pass_state" in inspect.signature(CLASSES[name].forward).parameters, name


@pytest.mark.parametrize("name", ATTENTION)
def test_every_layer_publishes_and_its_loss_reaches_the_total(name):
    model = build(name, attention="published")
    layers, pass_state = attentions(model), PassState()
    model(*inputs(model), pass_state=pass_state)
    depths, losses = pass_state.collect("depth"), pass_state.losses("size")
    assert len(depths) == len(losses) == len(layers) > 1
    branches = {}
    for (branch, _), layer in pass_state.layers.items():
        if "depth" in layer.published:  # a stack may have attention of its own
            branches.setdefault(branch, []).append(layer.published["depth"])
    for published in branches.values():  # each layer read what the layer below it published
        assert published == list(range(1, len(published) + 1))

    class Task(SplitTask):
        def count(self, batch):
            return 7

    _, again = call_with_state(model, *inputs(model))
    total = Task(None).with_layer_losses(torch.zeros(()), None, again, {"size": 0.5})
    torch.testing.assert_close(total, 7 * 0.5 * torch.stack(again.losses("size")).sum())
    total.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_cross_attention_has_a_layer_state_of_its_own(name):
    model = build(name)
    for block in model.decoder.blocks:
        block.cross.attend = PublishedAttention(scale=block.cross.attend.scale)
    pass_state = PassState()
    model(*inputs(model), pass_state=pass_state)
    layers = len(model.decoder.blocks)
    assert pass_state.collect("cross.depth") == list(range(1, layers + 1))
    assert len(pass_state.losses("cross.size")) == layers
    assert not pass_state.collect("depth")  # self-attention and cross-attention do not share names


@pytest.mark.parametrize("name", [name for name in ATTENTION if issubclass(CLASSES[name], ImageModel)])
def test_image_models_take_it_in_every_method(name):
    model = build(name, attention="published")
    for method in model.forward_methods:
        pass_state = PassState()
        getattr(model, method)(*inputs(model), pass_state=pass_state)
        assert len(pass_state.losses("size")) == len(attentions(model)), method


@pytest.mark.parametrize("name", ALIGNERS)
def test_aligners_get_a_layer_state_for_each_step(name, monkeypatch):
    model = build(name)
    aligner = next(m for m in model.modules() if hasattr(m, "keys") and hasattr(m, "weights") and callable(m))
    call = type(aligner).forward

    def publish(self, query, keys, mask=None, state=None, layer_state=None):
        layer_state.add_loss("size", query.square().mean())
        return call(self, query, keys, mask, state)

    monkeypatch.setattr(type(aligner), "forward", publish)
    monkeypatch.setattr(type(aligner), "takes_layer_state", True, raising=False)
    pass_state, batch = PassState(), inputs(model)
    model(*batch, pass_state=pass_state)
    assert len(pass_state.losses("size")) == (batch[0] if name == "handwriting" else batch[1]).shape[1]


def test_a_model_without_layer_states_is_called_without_one():
    model = build("seq2seq")
    batch = inputs(model)
    found, pass_state = call_with_state(model, *batch)
    assert torch.equal(found, model(*batch))
    assert not pass_state.layers
