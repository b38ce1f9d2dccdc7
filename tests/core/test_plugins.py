"""Plugins: files and modules that REGARD_PLUGINS names."""

import sys

import pytest

from regard.core.errors import RegardError
from regard.core.plugins import load_plugins


@pytest.fixture
def plugins(monkeypatch):
    """Load what the variable names, afresh; afterwards nothing of it is left."""
    before = set(sys.modules)

    def load(value):
        monkeypatch.setenv("REGARD_PLUGINS", value)
        load_plugins.cache_clear()
        load_plugins()

    yield load
    load_plugins.cache_clear()
    for name in [name for name in sys.modules if name not in before and name.startswith("own_")]:
        del sys.modules[name]


def test_plugin_may_be_a_file(plugins, tmp_path, monkeypatch):
    (tmp_path / "own_part.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass Part:\n    size: int = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    plugins("own_part.py")
    assert sys.modules["own_part"].Part().size == 3
    assert sys.modules["own_part"].Part.__module__ == "own_part"


def test_several_plugins_are_separated_by_commas(plugins, tmp_path):
    for name in ("own_a", "own_b"):
        (tmp_path / f"{name}.py").write_text("")
    plugins(f"{tmp_path / 'own_a.py'}, {tmp_path / 'own_b.py'},")
    assert {"own_a", "own_b"} <= sys.modules.keys()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("own_missing.py", None, "there is no file"),
        ("json.py", "", "taken by another module"),
        ("own_broken.py", "1 / 0", "ZeroDivisionError"),
        ("own_typo.py", "def", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(plugins, tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(RegardError, match=said) as error:
        plugins(str(tmp_path / name))
    assert name in str(error.value)
    assert name.removesuffix(".py") not in sys.modules or name == "json.py"
