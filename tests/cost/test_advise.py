"""Advice comes from measurements alone: ranked by them, silent where there are none."""

import json

import pytest

from regard import cli
from regard.core.errors import BadInput, Unsupported
from regard.cost import measurements
from regard.cost.advise import advise, relative_score

LENGTHS = (256, 1024, 4096)


def cells(seconds, memory=2**20):
    return {str(n): {"forward": seconds(n) / 3, "backward": 2 * seconds(n) / 3, "memory": memory} for n in LENGTHS}


def run(task, attention, value, metric="accuracy"):
    return {"task": task, "attention": attention, "seed": 1, "metric": metric, "value": value}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    record = {"cpu": "A CPU", "date": "2026-01-01", "batch": 1, "heads": 4, "head_dim": 32, "dtype": "float32"}
    record |= {"threads": 1, "lengths": LENGTHS}
    record["cases"] = {
        "softmax": {"bidirectional": cells(lambda n: 1e-9 * n**2), "causal": cells(lambda n: 1e-9 * n**2)},
        "linear": {"bidirectional": cells(lambda n: 1e-6 * n), "causal": cells(lambda n: 3e-6 * n)},
        "nystrom": {"bidirectional": cells(lambda n: 5e-7 * n), "measured": {"load": 7.5}},
    }
    (tmp_path / "scores").mkdir()
    (tmp_path / "speed-cpu.json").write_text(json.dumps(record))
    runs = [run("recall", "softmax", 0.8), run("recall", "linear", 0.4), run("recall", "nystrom", 0.76)]
    for number, each in enumerate(
        [*runs, run("lm_bytes", "softmax", 1.5, "loss"), run("lm_bytes", "linear", 2.0, "loss")]
    ):
        (tmp_path / "scores" / f"{number}.json").write_text(json.dumps(each))
    monkeypatch.setattr(measurements, "measurement_folder", lambda: tmp_path)
    measurements.read_speeds.cache_clear()
    measurements.read_scores.cache_clear()
    yield
    measurements.read_speeds.cache_clear()
    measurements.read_scores.cache_clear()


def test_the_fastest_at_the_length_is_first(measured):
    found = advise(4096)
    assert [each.name for each in found.candidates] == ["nystrom", "linear", "softmax"]
    assert found.best.speedup == pytest.approx(1e-9 * 4096 / 5e-7)
    assert advise(256).best.name == "softmax"
    between = advise(2048)
    assert between.candidates[1].seconds == pytest.approx(1e-6 * 2048)
    causal = advise(4096, causal=True)
    assert [each.name for each in causal.candidates] == ["linear", "softmax"]
    assert "nystrom" in causal.left_out


def test_scores_are_shares_of_dense_attention(measured):
    assert relative_score("nystrom") == (pytest.approx(0.95), ("recall",))
    share, tasks = relative_score("linear")
    assert share == pytest.approx((0.5 + 0.75) / 2)
    assert set(tasks) == {"recall", "lm_bytes"}
    assert relative_score("unknown") == (None, ())
    assert [each.name for each in advise(4096, accuracy=0.9).candidates] == ["nystrom", "softmax"]
    assert "50 %" in advise(4096, accuracy=0.9).left_out["linear"]
    assert advise(4096).left_out["reformer"] == "not measured"


def test_causal_advice_counts_the_scores_of_decoders(measured):
    assert relative_score("linear", causal=True) == (0.75, ("lm_bytes",))
    assert relative_score("linear", causal=False) == (0.5, ("recall",))
    assert [each.score for each in advise(4096, causal=True).candidates] == [0.75, 1.0]


def test_where_nothing_was_measured_it_says_so(measured):
    with pytest.raises(Unsupported, match="nothing was measured on cuda"):
        advise(4096, device="cuda")
    with pytest.raises(Unsupported, match=r"256 to 4,096; .*variants\.py --device cpu --lengths 16384"):
        advise(16384)
    with pytest.raises(BadInput, match="measured on cpu and cuda, got device 'cuda:0'"):
        advise(4096, device="cuda:0")
    with pytest.raises(BadInput, match="accuracy"):
        advise(1024, accuracy=1.5)


def test_the_command_prints_the_numbers(measured, monkeypatch, capsys):
    assert cli.main(["advise", "--length", "4096"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("nystrom: 8.2 times as fast")
    assert "95 % of its scores" in shown
    assert "A CPU, 2026-01-01" in shown
    assert "on recall (docs" in shown
    assert "busy" in shown
    assert cli.main(["advise", "--length", "2048", "--causal"]) == 0
    shown = capsys.readouterr().out
    assert "Between what was measured at 1,024 and 4,096 tokens." in shown
    assert cli.main(["advise", "--length", "4096", "--causal"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "linear: 1.4 times as fast as dense attention at 4,096 tokens, causal; 75 % of its scores."
    assert shown[1] == "Nothing that is faster was measured to keep 90 % of its scores."
    monkeypatch.setattr("regard.core.terminal_text.terminal_width", lambda: 60)
    assert cli.main(["advise", "--length", "4096", "--causal"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
    assert cli.main(["advise", "--length", "256", "--causal", "--all"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("softmax: dense attention is the fastest")
    assert "left out: nystrom" in shown
    assert cli.main(["advise", "--length", "256", "--device", "cuda"]) == 1
    assert "nothing was measured on cuda" in capsys.readouterr().err
