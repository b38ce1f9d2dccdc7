"""Declared metrics: names, units and directions, and what the log, the command and the page print."""

import math

import pytest

from regard.cli.eval import describe_report
from regard.core.spec import resolve
from regard.metrics.base import (
    ACCURACY,
    BITS_PER_BYTE,
    BLEU,
    EXACT_MATCH,
    Metric,
    describe_metrics,
    error_rate,
    find_metric,
    loss_metric,
)
from regard.tasks import TASKS

WER = error_rate("wer", "WER", scale=100)


def test_values_are_shown_with_their_unit_and_without_meaningless_digits():
    assert WER.format(0.0431) == error_rate("wer", "WER").format(4.31) == "4.31 %"
    assert loss_metric("nats per token").format(3.21474) == "3.2147 nats per token"
    assert BLEU.format(31.204) == "31.20"
    assert BITS_PER_BYTE.format(1.23456) == "1.2346"
    assert ACCURACY.format(3.687e-14) == ACCURACY.format(-1e-9) == "0.00 %"
    assert Metric("correlation", "correlation", digits=4).format(-3.687e-14) == "0.0000"
    assert ACCURACY.format(math.nan) == "not finite"
    assert (WER.label, loss_metric("nats per word").label, BLEU.label) == ("WER %", "loss (nats per word)", "BLEU")


def test_a_direction_says_which_value_is_best():
    assert BLEU.best([1.0, 3.0, 2.0]) == WER.best([3.0, 1.0, 2.0]) == 1
    assert BLEU.is_better(2.0, 1.0)
    assert ACCURACY.is_better(2.0, 1.0)
    assert WER.is_better(1.0, 2.0)
    assert Metric("count", "count", higher_is_better=None).best([1.0]) is None


def test_parts_of_a_metric_have_its_unit():
    metrics = (EXACT_MATCH, loss_metric("nats per digit"))
    assert find_metric(metrics, "exact_match_20").name == "exact match 20"
    assert find_metric(metrics, "val_loss").label == "val loss (nats per digit)"
    assert find_metric((), "loss").higher_is_better is False
    assert find_metric(metrics, "tokens") is None
    assert describe_metrics(metrics, {"exact_match": 0.5, "tokens": 3, "other": 1.0}) == "exact match 50.00 %"


@pytest.mark.parametrize("name", TASKS)
def test_every_task_declares_its_metrics(name):
    cls = resolve(TASKS, name, "task")
    keys = [metric.key for metric in cls.metrics]
    assert len(set(keys)) == len(keys)
    assert "loss" in keys
    assert cls.metrics[0].higher_is_better is not None
    for metric in cls.metrics:
        assert metric.low is None or metric.high is None or metric.low < metric.high


def test_a_report_is_printed_with_units_signatures_and_edits():
    numbers = {"loss": 0.30149, "wer": 0.05, "words": 9, "substitutions": 1, "insertions": 0, "deletions": 2,
               "recordings": 1050, "bleu": 31.2, "bleu_signature": "case:mixed"}  # fmt: skip
    lines = list(describe_report("test", numbers, (WER, BLEU, loss_metric("nats per label")), "recordings"))
    assert lines[0] == "test: 1,050 recordings, loss 0.3015 nats per label, WER 5.00 %"
    assert lines[1] == "    1 substitutions, 0 insertions, 2 deletions of 9 words"
    assert lines[2].split() == ["BLEU", "31.20", "case:mixed"]


def test_cased_scores_of_a_model_that_writes_lower_case_are_left_out():
    lower = Metric("bleu_lower", "BLEU, lower-case")
    numbers = {
        "bleu": 7.96,
        "bleu_signature": "cased",
        "bleu_lower": 35.5,
        "bleu_lower_signature": "lc",
        "loss": 3.687e-14,
    }
    row = {"from": 1, "to": 5, "count": 2, "bleu": 7.0, "bleu_lower": 30.0}
    metrics = (Metric("bleu", "BLEU"), lower, loss_metric("nats per token"))
    shown = "\n".join(describe_report("test", numbers | {"by_length": [row], "lower_case": True}, metrics, "sentences"))
    assert "35.5" in shown
    assert "7.96" not in shown
    assert "7.0" not in shown
    assert "e-14" not in shown
    assert "lower case only" in shown
    shown = "\n".join(describe_report("test", numbers | {"lower_case": False}, metrics, "sentences"))
    assert "7.96" in shown
