"""Models that are too large for one process are initialised part by part, with the values of the ordinary way."""

import math

import pytest
import torch
from torch import nn

from regard.core.errors import Unsupported
from regard.training.parallel import deferred_init
from regard.training.parallel.deferred_init import build_deferred
from tests.training.run_ranks import together


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(deferred_init, "MIN_DEFERRED", 30)


class Model(nn.Module):
    """Everything that initialisers do: twice, in parts, from each other, rejected draws, own generators, tied."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(7, 9), nn.Linear(7, 9)
        self.truncated = nn.Parameter(torch.empty(41, 3))
        nn.init.trunc_normal_(self.truncated, std=1.0, a=-1.0, b=1.2)
        nn.init.orthogonal_(self.first.weight)
        with torch.no_grad():
            self.second.weight[2:5].normal_(0.5, 0.1)
            self.second.weight[4:].copy_(self.first.weight[4:] * 3)
            self.second.weight.mul_(math.pi)
        self.tied = self.second.weight
        seeded = torch.randn(6, 6, generator=torch.Generator().manual_seed(3))
        self.register_buffer("table", torch.cat([seeded, torch.rand(5, 6)]))
        self.register_buffer("count", torch.arange(40.0).cumsum(0))
        self.small = nn.Parameter(torch.rand(3))


def test_values_and_later_draws_are_those_of_the_ordinary_initialisation():
    torch.manual_seed(11)
    expected, later = Model(), torch.rand(4)
    torch.manual_seed(11)
    model, deferred = build_deferred(Model)
    assert torch.equal(torch.rand(4), later)
    assert {name for name, x in model.state_dict().items() if x.is_meta} == {
        "first.weight", "second.weight", "tied", "truncated", "table", "count"
    }  # fmt: skip
    torch.rand(100)  # whatever is drawn in between
    deferred.materialize(model, torch.device("cpu"))
    assert model.tied is model.second.weight
    assert model.state_dict().keys() == expected.state_dict().keys()
    for name, x in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], x), name


def test_a_weight_that_is_initialised_twice_is_computed_once():
    def build():
        layer = nn.Linear(8, 8, bias=False)
        nn.init.normal_(layer.weight)
        return layer

    _, deferred = build_deferred(build)
    found = {}
    deferred._recorder._collect(deferred_init._storage(deferred._origins["weight"]), 99, found)
    assert [operation.call.name() for operation in found.values()] == ["aten::normal_"]


def test_a_tensor_that_is_copied_onto_itself_keeps_its_values():
    def build():
        layer = nn.Linear(8, 8, bias=False)
        with torch.no_grad():
            layer.weight.copy_(layer.weight)
        return layer

    torch.manual_seed(2)
    expected = build().weight
    torch.manual_seed(2)
    model, deferred = build_deferred(build)
    deferred.materialize(model, torch.device("cpu"))
    assert torch.equal(model.weight, expected)


def test_a_tensor_that_nothing_would_materialise_is_refused():
    class Stray(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = torch.ones(9, 9)

    with pytest.raises(Unsupported, match="Stray keeps the tensor mask outside its parameters and buffers"):
        build_deferred(Stray)


def test_shards_of_two_processes_are_cut_from_the_ordinary_initialisation():
    together(2, "tests.training.deferred_ranks")


@pytest.mark.long
def test_shards_of_four_processes_are_cut_from_the_ordinary_initialisation():
    together(4, "tests.training.deferred_ranks")
