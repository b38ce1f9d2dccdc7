"""Specs are checked before a part is built: names, types, ranges."""

import inspect
import os
import subprocess
import sys

import pytest
from torch import nn

import regard
from regard import cli
from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.blocks import FEEDFORWARDS, NORMS, RNN_ENCODERS, STEMS
from regard.core.errors import BadInput, RegardError
from regard.core.plugins import load_plugins
from regard.core.spec import build_part, check_untrusted, is_learned, resolve
from regard.data.augment import AUGMENTATIONS, MIX_METHODS
from regard.losses.reinforce_baselines import BASELINES
from regard.models.bytenet import CONVOLUTIONS
from regard.models.mvit import POOLINGS
from regard.positions import (
    GLOBE_POSITIONS,
    GRAPH_POSITIONS,
    GRID_POSITIONS,
    POINT_POSITIONS,
    POSITIONS,
    QUERY_BIASES,
    WINDOW_BIASES,
)
from regard.tasks.scheduled_sampling import SAMPLING_SCHEDULES
from regard.training.optimizers import OPTIMIZERS

TABLES = {
    "aligner": ALIGNERS,
    "attention": MECHANISMS,
    "augmentation": AUGMENTATIONS,
    "baseline": BASELINES,
    "blend": MIX_METHODS,
    "convolution": CONVOLUTIONS,
    "feed-forward": FEEDFORWARDS,
    "grid": GRID_POSITIONS,
    "norm": NORMS,
    "optimizer": OPTIMIZERS,
    "pooling": POOLINGS,
    "positions": POSITIONS | WINDOW_BIASES | QUERY_BIASES | POINT_POSITIONS | GRAPH_POSITIONS,
    "place": GLOBE_POSITIONS,
    "encoder": RNN_ENCODERS,
    "sampling schedule": SAMPLING_SCHEDULES,
    "stem": STEMS,
}
CONTEXT = {  # arguments that the caller of these parts passes
    **dict.fromkeys(("width", "hidden", "query_width", "memory_width", "length", "head_dim", "normalized_shape"), 8),
    "heads": 2,
    "channels": 3,
    "patch": 4,
    "depth": 4,
    "dilation": 1,
    "samples": 4,
    "steps": 5,
    "grid": (4, 4),
    "max_grid": (4, 4),
    "causal": True,
}
STRANGE = ("0", "-1", "1.5", "-0.5", "'a'", "None", "True", "1e999", "(1, 2, 3)", "[]", "{}")


@pytest.mark.parametrize("kind", TABLES)
def test_any_value_builds_a_part_or_raises_a_regard_error(kind):
    for name in TABLES[kind]:
        for key, each in inspect.signature(resolve(TABLES[kind], name, kind)).parameters.items():
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and key not in ("device", "dtype"):
                refused = [value for value in STRANGE if not can_build(kind, f"{name}({key}={value})")]
                assert refused, f"{key} of {kind} {name} takes all of these"


def can_build(kind, spec):
    """Return whether a part is built; any error but a RegardError is said with the spec."""
    try:
        # of a convolution they are sizes, of attention a name and a number
        sizes = {} if kind == "attention" else {"kernel": 3, "stride": (1, 1)}
        build_part(TABLES[kind], spec, kind, **CONTEXT, **sizes)
    except RegardError:
        return False
    except Exception as error:
        raise AssertionError(f"{kind} {spec!r}") from error
    return True


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gru(layers=0)", "layers of encoder 'gru' must be at least 1, got 0"),
        ("gru(hidden=-3)", "hidden of encoder 'gru' must be at least 1, got -3"),
        ("gru(layers=1.5)", "'layers of encoder gru' must be int, got 1.5"),
        ("gru(layers='two')", "'layers of encoder gru' must be int, got 'two'"),
        ("gru(dropout=3)", "dropout of encoder 'gru' must be at least 0 and less than 1, got 3.0"),
        ("gru(0)", "width of encoder 'gru' must be at least 1, got 0"),
    ],
)
def test_the_error_names_the_part_and_the_argument(spec, message):
    with pytest.raises(RegardError, match="^" + message.replace("(", r"\(")):
        regard.build("rnnsearch", vocab=20, encoder=spec)


def test_a_pair_is_two_numbers():
    with pytest.raises(RegardError, match="patch of stem patches"):
        build_part(STEMS, "patches(patch=(4, 4, 4))", "stem", channels=3, width=8)
    assert build_part(STEMS, "patches(patch=[4, 2])", "stem", channels=3, width=8).embed.stride == (4, 2)


class Mine(nn.Module):
    """A part of the user's own."""

    def __init__(self, width: int, shift: int = 1, way: "Unknown" = None) -> None:  # noqa: F821
        super().__init__()
        self.shift, self.way = shift, way


def test_arguments_of_a_part_of_the_users_own_are_not_checked(monkeypatch):
    monkeypatch.setitem(RNN_ENCODERS, "mine", (__name__, "Mine"))
    made = build_part(RNN_ENCODERS, "mine(shift=-2, way='any')", "encoder", width=4)
    assert (made.shift, made.way) == (-2, "any")


@pytest.mark.parametrize("wrong", [None, [], {}, (), 3, 0.5, True])
@pytest.mark.parametrize(("model", "field"), [("gpt", "attention"), ("rnnsearch", "encoder"), ("rnnsearch", "aligner")])
def test_a_value_that_is_neither_a_spec_nor_a_module_raises(model, field, wrong):
    with pytest.raises(RegardError):
        regard.build(model, size="tiny", vocab=20, **{field: wrong})


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("gpt", {"vocab": 20, "positions": "alibi(heads=3)"}, r"heads of positions 'alibi' must be \d+ here, got 3"),
        ("gpt", {"vocab": 20, "feedforward": "swiglu(width=5)"}, "width of feed-forward 'swiglu' must be .* got 5"),
        ("rnnsearch", {"vocab": 20, "aligner": "additive(memory_width=3)"}, "memory_width of aligner 'additive' must"),
        ("vit", {"stem": "patches(patch=16)"}, "patch of stem 'patches' must be 4 here, got 16"),
    ],
)
def test_a_spec_may_not_contradict_the_sizes_of_its_model(model, settings, message):
    with pytest.raises(RegardError, match=message):
        regard.build(model, size="tiny", **settings)


def test_a_spec_may_set_sizes_of_its_own():
    assert regard.build("rnnsearch", size="tiny", vocab=20, encoder="gru(hidden=7)").encoder.hidden == 7
    regard.build("rnnsearch", size="tiny", vocab=20, aligner="additive(width=7)")
    regard.build("gpt", size="tiny", vocab=20, feedforward="swiglu(hidden=7)", positions="learned(length=9)")


def test_numbers_of_a_strangers_spec_are_limited_also_in_an_inner_part():
    options = "x(a=None, b='name', c=True, d=-512)"
    for good in ("softmax", "learned(length=512)", "rotary(base=1e6)", options, "f(3)", "f((1, 2))"):
        check_untrusted(good)
    inner, long = "a(b='c(d=513)')", f"f({(1,) * 9})"
    for bad in (
        "learned(length=513)",
        "f(-513)",
        "rotary(base=1.1e6)",
        "f(x=1e400)",
        "f((1, 513))",
        long,
        "f([1])",
        inner,
    ):
        with pytest.raises(BadInput, match="up to 512"):
            check_untrusted(bad)
    with pytest.raises(BadInput, match="up to 512"):
        check_untrusted(f"f('{'x' * 101}')")


def test_whether_a_part_is_learned_is_known_without_its_memory():
    assert is_learned(POSITIONS, "learned(length=1000000000000)", "positions", width=64)  # 256 TB
    assert not is_learned(POSITIONS, "sinusoidal", "positions", width=64)
    assert not is_learned(MECHANISMS, "softmax(scale=0.5)", "attention", dropout=0.0)


QUIET = """
from regard.attention import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention

class Quiet(SoftmaxAttention):
    '''Softmax, quietly.'''

MECHANISMS["quiet"] = ("quiet_part", "Quiet")
"""


def run(tmp_path, *words, **environment):
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment
    return subprocess.run(
        [sys.executable, "-m", "regard", *words], env=here, capture_output=True, text=True, timeout=600
    )


def test_commands_know_parts_of_plugins(tmp_path):
    (tmp_path / "quiet_part.py").write_text(QUIET)
    assert run(tmp_path, "cost", "gpt:tiny", "vocab=50", "attention=quiet", REGARD_PLUGINS="quiet_part").returncode == 0


def test_a_plugin_that_is_not_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("REGARD_PLUGINS", "nowhere")
    load_plugins.cache_clear()
    try:
        assert cli.main(["list", "attention"]) == 1
    finally:
        load_plugins.cache_clear()
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot import plugin 'nowhere', named by REGARD_PLUGINS" in line


@pytest.mark.long
def test_commands_know_parts_of_entry_points(tmp_path):
    (tmp_path / "quiet_part.py").write_text(QUIET)
    info = tmp_path / "quiet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[regard.plugins]\nquiet = quiet_part\n")
    assert "quiet" in run(tmp_path, "list", "attention").stdout


def test_a_registry_entry_that_is_no_pair_of_names_raises(monkeypatch):
    monkeypatch.setitem(RNN_ENCODERS, "bad", Mine)
    with pytest.raises(RegardError, match=r"encoder 'bad' is registered as .*; expected a pair of names"):
        build_part(RNN_ENCODERS, "bad", "encoder", width=4)
