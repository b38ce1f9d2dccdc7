"""What a spec says of a part is checked before the part is made: names, types, numbers."""

import inspect

import pytest
from torch import nn

import regard
from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.blocks import CONVOLUTIONS, FEEDFORWARDS, NORMS, POOLINGS, READERS
from regard.core.errors import RegardError
from regard.core.spec import make, resolve
from regard.data.augment import AUGMENTS, BLENDS
from regard.positions import GRIDS, POSITIONS, WINDOWS
from regard.tasks.baselines import BASELINES
from regard.tasks.forcing import FORCING
from regard.tokens import STEMS
from regard.training.optimisers import OPTIMISERS

TABLES = {
    "aligner": ALIGNERS,
    "attention": MECHANISMS,
    "augmentation": AUGMENTS,
    "baseline": BASELINES,
    "blend": BLENDS,
    "convolution": CONVOLUTIONS,
    "feed-forward": FEEDFORWARDS,
    "grid": GRIDS,
    "norm": NORMS,
    "optimiser": OPTIMISERS,
    "pooling": POOLINGS,
    "positions": POSITIONS | WINDOWS,
    "reader": READERS,
    "schedule of forcing": FORCING,
    "stem": STEMS,
}
GIVEN = {  # what the surroundings of all these would know
    **dict.fromkeys(("width", "hidden", "query_width", "memory_width", "length", "head_width", "normalized_shape"), 8),
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
        make(TABLES[kind], spec, kind, **GIVEN)
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
        regard.build("rnnsearch", vocab=20, reader=spec)


def test_a_pair_is_two_numbers():
    with pytest.raises(RegardError, match="patch of stem patches"):
        make(STEMS, "patches(patch=(4, 4, 4))", "stem", **GIVEN)
    assert make(STEMS, "patches(patch=[4, 2])", "stem", **GIVEN).embed.stride == (4, 2)


class Mine(nn.Module):
    """A part from outside."""

    def __init__(self, width: int, shift: int = 1, way: "Unknown" = None) -> None:
        super().__init__()
        self.shift, self.way = shift, way


def test_what_someone_elses_part_may_be_given_is_their_affair(monkeypatch):
    monkeypatch.setitem(READERS, "mine", (__name__, "Mine"))
    made = make(READERS, "mine(shift=-2, way='any')", "reader", width=4)
    assert (made.shift, made.way) == (-2, "any")
