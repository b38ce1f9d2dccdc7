"""What a spec says of a part is checked before the part is made: names, types, numbers."""

import inspect
import os
import subprocess
import sys

import pytest
from torch import nn

import regard
from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.blocks import CONVOLUTIONS, FEEDFORWARDS, NORMS, POOLINGS, RNN_ENCODERS
from regard.core.errors import RegardError
from regard.core.spec import build_part, resolve
from regard.data.augment import AUGMENTATIONS, MIX_METHODS
from regard.losses.reinforce_baselines import BASELINES
from regard.positions import GRID_POSITIONS, POSITIONS, WINDOW_BIASES
from regard.tasks.scheduled_sampling import SAMPLING_SCHEDULES
from regard.tokens import STEMS
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
    "optimiser": OPTIMIZERS,
    "pooling": POOLINGS,
    "positions": POSITIONS | WINDOW_BIASES,
    "reader": RNN_ENCODERS,
    "schedule of forcing": SAMPLING_SCHEDULES,
    "stem": STEMS,
}
GIVEN = {  # what the surroundings of all these would know
    **dict.fromkeys(("width", "hidden", "query_width", "memory_width", "length", "head_dim", "normalized_shape"), 8),
    "heads": 2,
    "channels": 3,
    "patch": 4,
    "depth": 4,
    "kernel": 3,
    "dilation": 1,
    "samples": 4,
    "steps": 5,
    "stride": (1, 1),
    "grid": (4, 4),
    "causal": True,
}
STRANGE = ("0", "-1", "1.5", "-0.5", "'a'", "None", "True", "1e999", "(1, 2, 3)", "[]", "{}")


def parts():
    for kind, table in TABLES.items():
        for name in table:
            for key, asked in inspect.signature(resolve(table, name, kind)).parameters.items():
                if asked.kind not in (asked.VAR_POSITIONAL, asked.VAR_KEYWORD) and key not in ("device", "dtype"):
                    yield pytest.param(kind, name, key, id=f"{kind} {name} {key}")


@pytest.mark.parametrize(("kind", "name", "key"), parts())
def test_whatever_is_written_makes_a_part_or_one_sentence(kind, name, key):
    refused = [value for value in STRANGE if not makes(kind, f"{name}({key}={value})")]
    assert refused  # nothing takes all of these


def makes(kind, spec):
    try:
        build_part(TABLES[kind], spec, kind, **GIVEN)
    except RegardError:
        return False
    return True


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("gru(layers=0)", "layers of reader 'gru' is 0; at least 1 is needed"),
        ("gru(hidden=-3)", "hidden of reader 'gru' is -3; at least 1 is needed"),
        ("gru(layers=1.5)", "'layers of reader gru' is 1.5, but int is wanted"),
        ("gru(layers='two')", "'layers of reader gru' is 'two', but int is wanted"),
        ("gru(dropout=3)", "dropout of reader 'gru' is 3.0; it is a share"),
        ("gru(0)", "width of reader 'gru' is 0; at least 1"),
    ],
)
def test_the_sentence_names_the_part_and_the_setting(spec, said):
    with pytest.raises(RegardError, match="^" + said.replace("(", r"\(")):
        regard.build("rnnsearch", vocab=20, encoder=spec)


def test_a_pair_is_two_numbers():
    with pytest.raises(RegardError, match="patch of stem patches"):
        build_part(STEMS, "patches(patch=(4, 4, 4))", "stem", channels=3, width=8)
    assert build_part(STEMS, "patches(patch=[4, 2])", "stem", channels=3, width=8).embed.stride == (4, 2)


class Mine(nn.Module):
    """A part from outside."""

    def __init__(self, width: int, shift: int = 1, way: "Unknown" = None) -> None:
        super().__init__()
        self.shift, self.way = shift, way


def test_what_someone_elses_part_may_be_given_is_their_affair(monkeypatch):
    monkeypatch.setitem(RNN_ENCODERS, "mine", (__name__, "Mine"))
    made = build_part(RNN_ENCODERS, "mine(shift=-2, way='any')", "reader", width=4)
    assert (made.shift, made.way) == (-2, "any")


@pytest.mark.parametrize("wrong", [None, [], {}, (), 3, 0.5, True])
@pytest.mark.parametrize(("model", "field"), [("gpt", "attention"), ("rnnsearch", "encoder"), ("rnnsearch", "aligner")])
def test_what_is_neither_a_name_nor_a_part_is_refused(model, field, wrong):
    with pytest.raises(RegardError):
        regard.build(model, size="tiny", vocab=20, **{field: wrong})


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (
            "gpt",
            {"vocab": 20, "positions": "alibi(heads=3)"},
            "heads of positions 'alibi' is 3, but its place asks for",
        ),
        ("gpt", {"vocab": 20, "feedforward": "swiglu(width=5)"}, "width of feed-forward 'swiglu' is 5"),
        ("rnnsearch", {"vocab": 20, "aligner": "additive(memory_width=3)"}, "memory_width of aligner 'additive' is 3"),
        ("vit", {"stem": "patches(patch=16)"}, "patch of stem 'patches' is 16, but its place asks for 4"),
    ],
)
def test_what_stands_around_a_part_is_not_for_its_spec_to_say(model, settings, said):
    with pytest.raises(RegardError, match=said):
        regard.build(model, size="tiny", **settings)


def test_what_is_a_parts_own_may_be_said():
    assert regard.build("rnnsearch", size="tiny", vocab=20, encoder="gru(hidden=7)").encoder.hidden == 7
    regard.build("rnnsearch", size="tiny", vocab=20, aligner="additive(width=7)")
    regard.build("gpt", size="tiny", vocab=20, feedforward="swiglu(hidden=7)", positions="learned(length=9)")


QUIET = """
from regard.attention import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention

class Quiet(SoftmaxAttention):
    '''Softmax, quietly.'''

MECHANISMS["quiet"] = ("quiet_part", "Quiet")
"""


def run(tmp_path, *words, **environment):
    here = os.environ | {"PYTHONPATH": str(tmp_path)} | environment
    return subprocess.run([sys.executable, "-m", "regard", *words], env=here, capture_output=True, text=True)


def test_commands_know_parts_from_outside(tmp_path):
    (tmp_path / "quiet_part.py").write_text(QUIET)
    assert run(tmp_path, "cost", "gpt:tiny", "vocab=50", "attention=quiet", REGARD_PLUGINS="quiet_part").returncode == 0
    done = run(tmp_path, "list", "attention", REGARD_PLUGINS="nowhere")
    assert done.returncode
    assert "the module 'nowhere', named by REGARD_PLUGINS, cannot be imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_know_the_parts_of_installed_packages(tmp_path):
    (tmp_path / "quiet_part.py").write_text(QUIET)
    info = tmp_path / "quiet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[regard.plugins]\nquiet = quiet_part\n")
    assert "quiet" in run(tmp_path, "list", "attention").stdout


def test_a_line_that_is_no_line_is_named(monkeypatch):
    monkeypatch.setitem(RNN_ENCODERS, "bad", Mine)
    with pytest.raises(RegardError, match=r"the line of reader 'bad' is .*; write the names of a module and a class"):
        build_part(RNN_ENCODERS, "bad", "reader", width=4)
