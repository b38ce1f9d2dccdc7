"""What is recorded of a search is what it did: against the search itself, the model re-run, and watched maps."""

import json
import math

import pytest
import torch

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.decoding import beam_search as searching
from regard.decoding import sample_search as walking
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.decoding.search_observer import SearchObserver, current_observer, observe_search
from regard.decoding.search_tree import SearchTree
from regard.interpret.search_trace import search_methods, trace_search
from regard.models import build
from tests.decoding.test_beam_search import EOS, tiny
from tests.long_params import rest_is_long
from tests.models.brute_force_search import log_probs

LINE = "Two dogs are running over the green grass."
SEARCHES = {
    "greedy": lambda m, s: greedy_search(m, s, max_length=7),
    "beam": lambda m, s: beam_search(m, s, beam_size=4, num_candidates=4, max_length=7)[0],
    "penalised": lambda m, s: beam_search(m, s, beam_size=3, num_candidates=3, max_length=9, length_penalty=0.4)[0],
    "diverse": lambda m, s: beam_search(m, s, beam_size=4, groups=2, diversity=1.5, num_candidates=4, max_length=6)[0],
    "sample": lambda m, s: sample(m, s, num_samples=3, top_k=8, top_p=0.9, min_p=0.05, seed=5, max_length=7)[0],
    "forced": lambda m, s: beam_search(m, s, beam_size=3, num_candidates=3, max_length=7, prefix=[[5, 6]],
                                       banned_tokens=[4])[0],
}  # fmt: skip
SOURCE = torch.tensor([[5, 9, 3, 7, 4]])


def recorded(name, seed=0, **settings):
    model = tiny(seed, **settings)
    with watch(model) as seen:
        tree = SearchTree(seen)
        with observe_search(tree):
            found = SEARCHES[name](model, SOURCE)
    return model, tree, found


@pytest.fixture(scope="module")
def zoo():
    loaded = {}
    return lambda name: loaded.setdefault(name, regard.load(name)) if name not in loaded else loaded[name]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SEARCHES)
def test_recorded_ends_are_what_the_search_gives_and_looking_on_changes_nothing(name, seed):
    model, tree, found = recorded(name, seed)
    assert found == SEARCHES[name](model, SOURCE)
    assert tree.hypotheses == found
    root = tree.nodes[0]  # nothing is written yet, with certainty
    assert (root.log_prob, root.total_log_prob, root.score) == (0.0, 0.0, 0.0)
    ends = tree.ends()
    assert [list(node.path) for node in ends] == [one.tokens for one in found]
    for node, one in zip(ends, found, strict=True):
        assert math.isclose(node.total_log_prob, one.log_probability, abs_tol=1e-5)
        assert (node.status == "finished") == one.finished


@pytest.mark.parametrize("name", SEARCHES)
def test_every_node_has_the_log_probability_of_the_model_re_run(name):
    model, tree, _ = recorded(name, 1)
    banned = [4] if name == "forced" else []
    for node in tree.nodes[1:]:
        before = tree.nodes[node.parent].path
        scores = torch.tensor(log_probs(model, SOURCE[0], before), dtype=torch.float64)
        scores[banned] = -math.inf
        assert math.isclose(node.log_prob, float(scores.log_softmax(-1)[node.token]), abs_tol=1e-5)
        assert math.isclose(node.total_log_prob, tree.nodes[node.parent].total_log_prob + node.log_prob, abs_tol=1e-6)


@pytest.mark.parametrize("name", ["beam", "penalised", "diverse"])
def test_what_is_pruned_ranks_below_what_is_kept_and_every_loss_has_a_reason(name):
    _, tree, _ = recorded(name, 2)
    for step in tree.steps:
        for group in {node.group for node in step.nodes}:
            own = [node for node in step.nodes if node.group == group]
            ranks = {status: [n.rank if n.rank is not None else n.total_log_prob for n in own if n.status == status] for status in ("kept", "pruned")}  # fmt: skip  # noqa: E501
            words = [
                n.rank if n.rank is not None else n.total_log_prob
                for n in own
                if n.status == "pruned" and n.token != EOS
            ]
            assert not words or max(words) <= min(ranks["kept"])
        assert all(node.reason for node in step.nodes if node.status == "pruned")
    going = {node.parent for node in tree.nodes if node.status != "pruned"}
    for node in tree.nodes[1:]:
        last = node.time == len(tree.steps) - 1
        assert (node.pruned_at >= 0) == (node.status == "kept" and node.id not in going and not last)
        assert node.pruned_at < 0 or node.reason


def test_outputs_that_are_pushed_out_say_so():
    told = [node.reason for seed in range(6) for node in recorded("beam", seed)[1].nodes if node.status == "finished"]
    assert any("score better" in why for why in told)
    assert "" in told


@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_word_lies_where_its_random_number_fell(seed):
    _, tree, _ = recorded("sample", seed)
    drawn = 0
    for step in tree.steps:
        for draw in step.draws:
            (node,) = (
                n for n in step.nodes if n.parent == draw.parent and n.beam == draw.beam and n.status != "pruned"
            )
            assert draw.low - 1e-6 <= draw.uniform <= draw.high + 1e-6
            assert math.isclose(draw.high - draw.low, node.share, abs_tol=1e-6)
            assert draw.num_left <= min(8, draw.num_allowed)
            offered = [n for n in step.nodes if n.parent == draw.parent and n.beam == draw.beam]
            assert all((n.share == 0) == n.reason.startswith("cut by") for n in offered)
            assert sum(n.share for n in offered) == pytest.approx(1)
            drawn += 1
    assert drawn > 3


def test_without_an_observer_nothing_is_made(monkeypatch):
    def refuse(*_):
        raise AssertionError("made for nobody")

    monkeypatch.setattr(searching, "BeamCandidates", refuse)
    monkeypatch.setattr(walking, "SampledTokens", refuse)
    for run in SEARCHES.values():
        assert run(tiny(0), SOURCE)
    with pytest.raises(AssertionError, match="nobody"), observe_search(SearchObserver()):
        beam_search(tiny(0), SOURCE, beam_size=2, max_length=3)
    assert current_observer() is None  # whatever happened inside


@pytest.mark.parametrize(
    "model", rest_is_long(["transformer", "t5", "rnnsearch", "luong", "convs2s"], "transformer", "luong")
)
def test_rows_of_every_kind_of_model_are_over_its_source(model):
    torch.manual_seed(0)
    sizes = {"transformer": {"size": "tiny"}, "t5": {"size": "tiny"}}.get(model, {})
    made = build(model, **sizes, vocab=11).eval()
    with watch(made) as seen:
        tree = SearchTree(seen)
        with observe_search(tree):
            beam_search(made, SOURCE, beam_size=3, max_length=4)
    assert tree.maps
    for t, step in enumerate(tree.steps):
        assert len(step.attention) == len(tree.maps)
        for rows in step.attention:
            assert [len(row) for row in rows] == [5] * (3 if t else 1)
            assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in rows)


@pytest.mark.parametrize("name", ["en-de", "gru-additive"])
def test_the_winners_rows_are_the_watched_maps_of_its_translation(zoo, name):
    translate = zoo(name)
    shown = trace_search(translate, {"text": LINE}, method="beam", beam_size=4)
    best = shown["hypotheses"][0]
    assert best["text"] == translate([LINE], beam_size=4)[0]
    traces = {trace.name: trace for trace in translate.attention(LINE) if trace.kind in ("cross", "align")}
    assert list(traces) == shown["maps"]
    nodes = {node["id"]: node for step in shown["steps"] for node in step["nodes"]}
    for number, trace in enumerate(traces.values()):
        assert list(trace.columns) == shown["source"]
        for time, (row, node) in enumerate(zip(trace.weights[0].mean(0), best["path"], strict=True)):
            parent = nodes.get(nodes[node]["parent"])
            beam_of = parent["beam"] if parent else 0
            looked = shown["steps"][time]["attention"][number][beam_of]
            assert looked == pytest.approx(row.tolist(), abs=1e-3)


@pytest.mark.parametrize("how", ["greedy", "beam", "sample"])
def test_a_gpt_looks_back_at_its_own_words_whatever_other_beams_wrote(zoo, how):
    write = zoo("shakespeare")
    shown = trace_search(write, {"text": "ROMEO:\n"}, method=how, max_new_tokens=9, beam_size=3, num_candidates=2)
    assert shown["attention_kind"] == "self"
    nodes = {node["id"]: node for step in shown["steps"] for node in step["nodes"]}
    for found in shown["hypotheses"]:
        traces = write.attention("ROMEO:\n", found["text"])
        prompt = len(shown["source"])
        for trace, number in zip(traces, range(len(shown["maps"])), strict=True):
            for time, node in enumerate(found["path"]):
                parent = nodes.get(nodes[node]["parent"])
                looked = shown["steps"][time]["attention"][number][parent["beam"] if parent else 0]
                row = trace.weights[0].mean(0)[prompt - 1 + time, : prompt + time]
                assert looked == pytest.approx(row.tolist(), abs=1e-3)


@pytest.mark.parametrize("name", ["en-de", "gru-additive", "sounds-en"])
def test_every_way_that_is_offered_gives_what_the_predictor_gives(zoo, name):
    predictor, line = zoo(name), "xylophone" if name == "sounds-en" else LINE
    drawn = {"temperature": 1.5, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "seed": 3}
    calls = {
        "beam": {"beam_size": 3, "num_candidates": 3},
        "greedy": {"beam_size": 1},
        "diverse": {"beam_size": 4, "groups": 2, "diversity": 2.0, "num_candidates": 4},
        "sample": {"sample": True, "num_candidates": 2, **drawn},
    }
    assert search_methods(predictor) == list(calls)
    for how, call in calls.items():
        settings = {"method": how, "beam_size": call.get("beam_size", 4), **(drawn if how == "sample" else {})}
        shown = trace_search(predictor, {"text": line}, **settings, diversity=2.0, num_candidates=2)
        expected = predictor.candidates([line], **call)[0]
        assert [one["text"] for one in shown["hypotheses"]] == [one.text for one in expected]
        assert [one["score"] for one in shown["hypotheses"]] == pytest.approx([one.score for one in expected], abs=1e-4)
        json.dumps(shown, allow_nan=False)


def test_a_writer_gives_what_it_writes(zoo):
    write = zoo("shakespeare")
    calls = {
        "sample": {"num_candidates": 2, "temperature": 0.8, "top_k": 10, "seed": 4},
        "greedy": {"temperature": 0.0},
        "beam": {"beam_size": 3, "num_candidates": 3},
    }
    for how, call in calls.items():
        shown = trace_search(
            write, {"text": "ROMEO:"}, method=how, max_new_tokens=12, **({} if how == "greedy" else call)
        )
        assert [one["text"] for one in shown["hypotheses"]] == [
            w.text for w in write.candidates(["ROMEO:"], max_new_tokens=12, **call)[0]
        ]
        assert shown["steps"][-1]["stopped"]


@pytest.mark.parametrize("name", ["digits", "digits-listen"])
def test_silence_is_not_searched_in(zoo, name):
    with pytest.raises(BadInput, match="no speech in this recording"):
        trace_search(zoo(name), {"audio": torch.zeros(8000)}, method="beam")


@pytest.mark.parametrize("how", ["greedy", "beam"])
def test_a_lattice_is_the_transcribers_own(zoo, how):
    hear = zoo("digits")
    shown = trace_search(hear, {"audio": "docs/assets/digits.wav"}, method=how, beam_size=4)
    heard = hear(["docs/assets/digits.wav"], beam_size=1 if how == "greedy" else 4)[0]
    assert shown["hypotheses"][0]["text"] == heard.text == "one four zero five five six"
    assert shown["hypotheses"][0]["score"] == pytest.approx(heard.score, abs=1e-4)
    frames = len(shown["path"])
    assert len(shown["steps"]) == len(shown["share"]) == len(shown["probabilities"]) == frames
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in (*shown["share"], *shown["probabilities"]))
    last = shown["steps"][-1]
    assert (last["kept"][0]["text"] if how == "beam" else last["text"]) == heard.text.split()
    if how == "beam":
        assert last["kept"][0]["score"] == pytest.approx(heard.score, abs=1e-4)
        assert any(step["pruned"] for step in shown["steps"])
        for step in shown["steps"]:
            assert len(step["kept"]) <= 4
            scores = [one["score"] for one in [*step["kept"], *step["pruned"]]]
            assert scores == sorted(scores, reverse=True)
    json.dumps(shown, allow_nan=False)


def test_what_cannot_be_played_is_refused(zoo):
    translate = zoo("en-de")
    for given, search, error in [
        ({"text": " "}, {}, BadInput),
        ({}, {}, BadInput),
        ({"text": "word " * 200}, {}, BadInput),
        ({"text": "A dog."}, {"method": "guess"}, BadInput),
        ({"text": "A dog."}, {"method": "diverse", "beam_size": 5}, BadInput),
        ({"text": "A dog."}, {"beam_size": 9}, BadInput),
        ({"text": "A dog."}, {"beem": 2}, UnknownName),
        ({"text": "A dog."}, {"method": "sample", "top_p": 2.0}, BadInput),
    ]:
        with pytest.raises(error):
            trace_search(translate, given, **search)
    with pytest.raises(Unsupported, match="does not search"):
        trace_search(zoo("languages"), {"text": "A dog."})
    assert search_methods(zoo("languages")) == []
    with pytest.raises(RegardError), observe_search(SearchTree()):  # two inputs are no tree
        beam_search(tiny(0), SOURCE.repeat(2, 1), beam_size=2, max_length=3)
