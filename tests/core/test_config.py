from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from regard.core.config import from_dict, override, parse_setting, to_dict
from regard.core.errors import RegardError, UnknownName
from regard.core.spec import Spec, build_part, layer_spec


@dataclass(frozen=True)
class Inner:
    steps: int = 10
    learning_rate: float = 0.1
    name: str = "a"
    kind: Literal["x", "y"] = "x"
    maybe: int | None = None
    many: tuple[int, ...] = (1, 2)
    part: Any = "softmax"


@dataclass(frozen=True)
class Outer:
    train: Inner = field(default_factory=Inner)
    flag: bool = False


def test_round_trip_through_json_values():
    outer = Outer(Inner(steps=3, many=(4, 5), maybe=7), True)
    plain = to_dict(outer)
    assert plain["train"]["many"] == [4, 5]
    assert from_dict(Outer, plain) == outer


def test_none_is_a_word_where_it_is_a_choice():
    @dataclass(frozen=True)
    class Positions:
        kind: Literal["none", "laplacian"] = "laplacian"

    assert override(Positions(), ["kind=none"]) == Positions("none")


def test_overrides_are_typed():
    changed = override(
        Outer(),
        ["train.steps=20", "train.learning_rate=1e-3", "train.name=3", "train.kind=y", "flag=true", "train.maybe=none",
         "train.part=linear(features=3)", "train.many=[7]"],
    )  # fmt: skip
    assert changed == Outer(Inner(20, 1e-3, "3", "y", None, (7,), "linear(features=3)"), True)
    assert override(Outer(), ["train.learning_rate=2"]).train.learning_rate == 2.0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.stpes=3", "did you mean 'steps'"),
        ("trian.steps=3", "did you mean 'train'"),
        ("train.steps=many", "must be int, got"),
        ("train.steps=1.5", "must be int, got"),
        ("train.steps=true", "must be int, got"),
        ("train.kind=z", "choose one of 'x', 'y'"),
        ("train=3", "group of settings"),
        ("train.steps.more=3", "has no fields"),
        ("train.steps", "write key=value"),
    ],
)
def test_bad_overrides_say_what_was_wrong(setting, message):
    with pytest.raises(RegardError, match=message):
        override(Outer(), [setting])


def test_unknown_fields_and_values_that_json_lacks_raise():
    with pytest.raises(UnknownName, match="did you mean 'flag'"):
        from_dict(Outer, {"flog": True})
    with pytest.raises(RegardError, match="register its class under a name"):
        to_dict(Inner(part=object()))


def test_specs_are_parsed_never_evaluated():
    assert Spec.parse("nystrom(landmarks=64, mode='a')") == Spec("nystrom", {"landmarks": 64, "mode": "a"})
    assert str(Spec.parse(" x( a = [1, 2] ) ")) == "x(a=[1, 2])"
    assert str(Spec.parse("classes( 3, a=1)")) == "classes(3, a=1)"
    assert Spec.parse("__import__('os')") == Spec("__import__", {}, ("os",))  # a name that no registry has
    for bad in ("x(f())", "x(a=f())", "x(*y)", "x.y", "x(", "1", "", "x(**{'a': 1})(b=2)"):
        with pytest.raises(RegardError, match="cannot parse the spec"):
            Spec.parse(bad)


def test_parts_are_made_by_name_or_pass_through():
    table = {"list": ("builtins", "list"), "fraction": ("fractions", "Fraction")}
    expected = build_part(table, "fraction(numerator=3, denominator=4)", "number")
    assert build_part(table, "fraction(numerator=3)", "number", denominator=4, unknown=5) == expected
    own = object()
    assert build_part(table, own, "number") is own
    with pytest.raises(UnknownName, match="did you mean 'fraction'"):
        build_part(table, "fracton", "number")
    with pytest.raises(UnknownName, match="did you mean 'numerator'"):
        build_part(table, "fraction(numeratr=3)", "number")


def test_a_list_of_specs_is_cycled_over_layers():
    assert [layer_spec(["a", "b"], n) for n in range(3)] == ["a", "b", "a"]
    assert layer_spec("a", 5) == "a"


def test_a_tuple_of_strings_may_be_comma_separated():
    @dataclass(frozen=True)
    class Train:
        loggers: tuple[str, ...] = ()

    assert override(Train(), ["loggers=tensorboard"]) == Train(("tensorboard",))
    assert override(Train(), ["loggers=tensorboard, wandb"]) == Train(("tensorboard", "wandb"))
    assert override(Train(), ["loggers=('a','b')"]) == Train(("a", "b"))
    assert override(Train(("a",)), ["loggers="]) == Train()


def test_a_number_of_hundreds_of_digits_is_one_line():
    @dataclass(frozen=True)
    class Rate:
        rate: float = 1.0

    with pytest.raises(RegardError) as refused:
        from_dict(Rate, {"rate": 10**400})
    assert "'rate' must be float, got 1000" in str(refused.value)
    assert len(str(refused.value)) < 150


def test_a_value_of_nested_brackets_is_a_string():
    assert parse_setting("(" * 10_000, int | str, "x") == "(" * 10_000
