"""docs/scaling.md shows the output of its commands."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", PAGE, flags=re.M)}
SHORT = {"# Scaling", "Assumptions", "Not measured"}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_scaling", ROOT / "docs" / "make_scaling.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "section", [pytest.param(s, marks=() if s in SHORT else pytest.mark.long, id=s) for s in SECTIONS]
)
def test_page_section_equals_command_output(script, section):
    assert script.refresh_page(SECTIONS[section]) == SECTIONS[section], "python docs/make_scaling.py writes it anew"


def test_page_table_equals_the_results_file(script):
    (found,) = [t for t in re.findall(r"(?:^\|[^\n]*\|\n)+", PAGE, re.M) if t.startswith("| model | rows ")]
    assert script._table(found, []) == found
    ratios = [float(row.split("|")[6]) for row in found.splitlines()[2:]]
    assert len(ratios) > 8
    assert all(0.85 < ratio < 1.15 for ratio in ratios)


@pytest.mark.long
def test_results_file_equals_current_estimates(script, monkeypatch):
    import json
    from dataclasses import replace

    from regard.cost.meta_model import parse_model_name, resolve_config
    from regard.cost.passes import training_step

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    spec = importlib.util.spec_from_file_location("benchmarks_cost", ROOT / "benchmarks" / "cost.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    record = json.loads(script.MEASURED.read_text(encoding="utf-8"))["cases"]
    for case, (word, settings, shape, plan) in zip(record, module.CASES["cpu"], strict=True):
        found = training_step(resolve_config(*parse_model_name(word), settings), shape, replace(plan, is_cpu=True))
        held = 4 * found.total + found.buffers + found.state + sum(found.peak.values())
        assert held / 2**20 == pytest.approx(case["contenders"]["estimated"]["memory_mib"], rel=1e-3)


@pytest.mark.long
def test_plans_fit_and_have_the_stated_parameters(script):
    import json

    commands = re.findall(r"^\$ (regard cost .*)$", SECTIONS["Three plans"], re.M)[:3]
    for command, size in zip(commands, (1e9, 10e9, 100e9), strict=True):
        found = json.loads(script.command_output(f"{command} --json"))
        assert found["fits"]
        assert found["parameters"] == pytest.approx(size, rel=0.05)
        assert found["run"]["items"] == 20 * found["parameters"]


def test_page_states_the_efficiencies_used():
    from regard.cost.devices import EXPECTED

    section = SECTIONS["Assumptions"]
    for text in (
        f"{EXPECTED.matmul:.0%}".replace("%", " %") + " of the data sheet's peak",
        f"{EXPECTED.attention:.0%}".replace("%", " %") + " of the peak",
        f"{EXPECTED.bandwidth:.0%}".replace("%", " %") + " of its bandwidth",
        f"{EXPECTED.launch * 1e6:.0f} µs",
        f"{EXPECTED.link:.0%}".replace("%", " %") + f"; {EXPECTED.latency * 1e6:.0f} µs per step",
        f"overlaps with {EXPECTED.overlap:.0%}".replace("%", " %"),
    ):
        assert text in section, text
