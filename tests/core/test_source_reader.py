"""What is read from the source of a module is what importing it gives."""

import dataclasses
import subprocess
import sys
import textwrap

import pytest

from regard.core import source_reader
from regard.core.source_reader import SourceClass, class_source, constructor, read_file

FAMILY = '''
"""Two networks.

More about them.
"""

from __future__ import annotations

import dataclasses
import torch
from dataclasses import dataclass, replace
from torch import nn

from regard.core.config import field

LIST = [1, 2]  # list is not bound here, max is


def max(a: int, b: int) -> int:
    return _twice(a) + b


def _twice(a):
    return 2 * a


_SMALL = {"width": max(1, 2)}
_SMALL |= {"layers": 3}
_SMALL["heads"] = 4
_SMALL.update(eps=1e-6)


@dataclass(frozen=True)
class Config:
    """Sizes."""

    width: int = 64  # of a token
    heads: int = field(4, low=1)

    def __post_init__(self) -> None:
        assert max(self.width, 0) >= 0


@dataclass(frozen=True)
class Wider(Config):
    width: int = 128


@dataclass
class Traits:
    cost: str
    exact: bool = True


class Base(nn.Module):
    """The base."""

    traits = Traits("N M")

    def __init__(self, width: int, *, dropout: float = 0.1) -> None:
        super().__init__()


@torch.no_grad()
class Network(Base):
    """A network
    of two lines."""

    traits = replace(Base.traits, exact=False)
    kinds: tuple[str, ...] = ("a", "b")


DEVICE = torch.device("cpu")
'''


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "family.py"
    file.write_text(FAMILY.lstrip())
    return read_file(file)


def test_names_of_a_file_that_imports_torch_are_bound(module):
    assert module.__doc__.splitlines()[0] == "Two networks."
    assert module._SMALL == {"width": 4, "layers": 3, "heads": 4, "eps": 1e-6}
    assert module.LIST == [1, 2]
    with pytest.raises(AttributeError, match="binds no NETWORKS"):
        _ = module.NETWORKS


def test_a_dataclass_is_made_with_its_base_and_its_comments(module):
    assert [f.name for f in dataclasses.fields(module.Wider)] == ["width", "heads"]
    assert module.Wider(heads=2) == module.Wider(128, 2)
    assert "# of a token" in class_source(module.Config)
    assert module.Config.__module__ == "family"


def test_a_class_that_needs_torch_is_read_by_attribute(module):
    network = module.Network
    assert isinstance(network, SourceClass)
    assert network.__doc__ == "A network\nof two lines."
    assert network.kinds == ("a", "b")
    assert (network.traits.cost, network.traits.exact) == ("N M", False)
    assert module.Base.traits.exact is True
    assert str(constructor(network)) == "(width: 'int', *, dropout: 'float' = 0.1) -> 'None'"
    with pytest.raises(AttributeError, match="has no sizes"):
        _ = network.sizes


def test_a_value_that_needs_torch_makes_the_module_be_imported(module, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "family.py").write_text(textwrap.dedent(FAMILY).replace("@torch.no_grad()\n", "").lstrip())
    assert module.DEVICE.type == "cpu"
    assert "family" in sys.modules
    del sys.modules["family"]


def test_reading_does_not_import_torch():
    program = """
        import sys
        from regard.core.source_reader import read_module
        gpt = read_module("regard.models.gpt")
        assert gpt.SIZES["xl"]["layers"] == 48 and gpt.Config(vocab=9).width == 768
        assert read_module("regard.attention").MECHANISMS["softmax"]
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


def test_a_module_that_is_imported_is_used_as_it_is():
    assert source_reader.read_module("regard.core.source_reader") is source_reader
