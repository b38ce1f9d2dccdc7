"""docs/results.md is what docs/make_results.py makes of the result files, and a run folder becomes such a file."""

import importlib.util
import json
import re

import pytest

from regard.metrics import bleu
from regard.tasks import TASKS

from .blocks import ROOT


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("make_results", ROOT / "docs" / "make_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def isolated_script(script, tmp_path, monkeypatch):
    """The script, writing into a folder of its own."""
    monkeypatch.setattr(script, "RUNS", tmp_path / "results")
    monkeypatch.setattr(script, "PAGE", tmp_path / "results.md")
    monkeypatch.setattr(script, "SPEED", tmp_path / "speed")
    monkeypatch.chdir(tmp_path)
    return script


def measured(value):
    numbers = {"loss": 1.5, "perplexity": 4.5, "sentences": 1000, "beam_size": 5, "length_penalty": 1.0, "split": "x"}
    for metric, more in (("bleu", 0.0), ("bleu_lower", 1.0), ("bleu_tokenized", 2.0), ("chrf", 20.0)):
        numbers |= {metric: value + more, f"{metric}_signature": f"{metric}|v:1", f"{metric}_detail": "details"}
    return {
        "model": "/somewhere/private/run",
        "recipe": "transformer_multi30k",
        "weights": "final",
        "parameters": 2_345_678,
        "machine": "One GPU",
        "torch": "2.0",
        "regard": "0.1.0",
        "results": {"test_2016_flickr": numbers, "test_2017_flickr": numbers},
    }


def run_folder(place, seed=1, value=39.0, style="moses"):
    place.mkdir()
    data = {"name": "parallel", "corpus": "multi30k", "source": "en", "target": "de", "style": style}
    result = {
        "seed": seed, "seconds": 330.0, "parameters": 2_345_678, "steps": 8000, "epochs": 145, "machine": "One GPU",
        "tokens_per_second": 123456.7, "precision": "bfloat16", "torch": "2.0", "final_weights": "average",
        "out": str(place),
    }  # fmt: skip
    (place / "recipe.json").write_text(json.dumps({"name": "transformer_multi30k", "data": data}), "utf-8")
    (place / "result.json").write_text(json.dumps(result), "utf-8")
    (place / "evaluation.json").write_text(json.dumps(measured(value)), "utf-8")
    return place


def test_page_equals_script_output(script):
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == script.build_page(), "docs/results.md is not edited by hand: python docs/make_results.py"


def test_missing_result_is_marked_as_not_measured(isolated_script):
    page = isolated_script.build_page()
    assert "41.02" in page
    assert "not measured yet" in page


def test_unverified_published_numbers_are_marked(script):
    page = script.build_page()
    assert "33.36 †" in page
    assert "41.02 |" in page
    for line in json.loads(script.PUBLISHED.read_text(encoding="utf-8")):
        assert line["checked"] != ("memory" in line["where"]), line


def test_run_becomes_a_file_and_a_row(isolated_script, tmp_path):
    folder = run_folder(tmp_path / "run")
    words = ["add", str(folder), "--name", "multi30k-en-de-tiny-1", "--system", "Transformer tiny"]
    assert isolated_script.main([*words, "--command", "regard train transformer_multi30k --out runs/tiny"]) == 0
    record = json.loads((tmp_path / "results" / "multi30k-en-de-tiny-1.json").read_text(encoding="utf-8"))
    assert record["seed"] == 1
    assert record["minutes"] == 5.5
    assert record["weights"] == "average"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert str(tmp_path) not in json.dumps(record)
    assert "private" not in json.dumps(record)
    page = isolated_script.build_page()
    assert page == (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| **Transformer tiny**, lower-case tokens | 41.00 |" in page
    assert "bleu_tokenized|v:1" in page
    assert "$ regard train transformer_multi30k --out runs/tiny" in page


def test_lowercase_model_is_scored_without_case(isolated_script):
    for style, expected in (("moses", {"bleu_tokenized", "bleu_lower"}), ("raw", set(isolated_script.METRICS))):
        found = list(isolated_script.scores(measured(30.0)["results"], style))
        assert {row["metric"] for row in found} == expected
        assert all(row["signature"] for row in found)


def test_seeds_share_a_row_with_mean_and_range(isolated_script, tmp_path):
    for seed, value in ((1, 39.0), (2, 39.6), (3, 39.3)):
        folder = run_folder(tmp_path / f"run{seed}", seed, value)
        words = ["add", str(folder), "--name", f"tiny-{seed}", "--system", "tiny", "--command", "regard train"]
        assert isolated_script.main(words) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert page.count("| **tiny**, lower-case tokens | 41.30 (41.00 to 41.60) |") == 2  # two parts
    assert "| 2,345,678 | 1, 2, 3 |" in page


def story_folder(place, task, error, steps=100):
    run_folder(place)
    data = {"name": "stories", "corpus": "babi", "size": "1k", "tasks": [task]}
    recipe = {"name": "memnn_babi", "data": data, "task": {"name": "story_answering"}, "train": {"steps": 100}}
    result = json.loads((place / "result.json").read_text("utf-8")) | {"steps": steps, "tokens": 3300}
    found = {"error": error, "failed": float(error > 0.05), "accuracy": 1 - error, "loss": 0.5, "questions": 1000}
    evaluation = measured(0.0) | {"results": {"test": found}}
    for name, content in (("recipe", recipe), ("result", result), ("evaluation", evaluation)):
        (place / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return str(place)


def test_models_of_one_task_each_become_one_run(isolated_script, tmp_path, capsys):
    folders = [story_folder(tmp_path / f"{task}", task, error) for task, error in ((1, 0.0), (2, 0.1), (5, 0.02))]
    words = ["--name", "single", "--system", "MemNN, single tasks", "--command", "regard train memnn_babi"]
    assert isolated_script.main(["add", *folders, *words]) == 0
    record = json.loads((tmp_path / "results" / "single.json").read_text("utf-8"))
    assert record["corpus"] == "babi 1k, 3 tasks"
    found = {score["metric"]: (score["value"], score["counts"]) for score in record["scores"]}
    everything = {"questions": 3000}
    assert found["error"] == (4.0, everything)
    assert found["failed"] == (1.0, everything)
    assert found["accuracy"] == (0.96, everything)
    assert [record[key] for key in ("steps", "minutes", "tokens_per_second")] == [300, 16.5, 10.0]
    for more in (story_folder(tmp_path / "again", 5, 0.0), str(run_folder(tmp_path / "other"))):
        assert isolated_script.main(["add", *folders, more, *words]) == 1
    assert "with one task each" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["recipe.json", "result.json", "evaluation.json"])
def test_unfinished_run_is_refused(isolated_script, tmp_path, capsys, missing):
    folder = run_folder(tmp_path / "run")
    (folder / missing).unlink()
    assert isolated_script.main(["add", str(folder), "--name", "x", "--command", "y"]) == 1
    assert missing in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_damaged_result_file_is_named_and_the_page_unchanged(isolated_script, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "bad.json").write_text("{", "utf-8")
    (tmp_path / "results.md").write_text("as it was", "utf-8")
    assert isolated_script.main([]) == 1
    assert "bad.json" in capsys.readouterr().err
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == "as it was"


def test_benchmarks_become_tables(isolated_script, tmp_path):
    speed = tmp_path / "speed"
    speed.mkdir()
    spread = {"median": 1234.5, "min": 1200.0, "max": 1300.0}
    contenders = {
        "regard": {"tokens_per_second": spread, "same_sentences": "16/16"},
        "transformers": {"tokens_per_second": spread},
    }
    case = {
        "batch": 16,
        "beam_size": 4,
        "contenders": contenders,
        "regard / transformers": {"median": 1.51, "min": 1.4, "max": 1.6},
    }
    output = {
        "command": "python benchmarks/translate.py",
        "date": "2026-01-01",
        "cpu": "A CPU",
        "threads": 2,
        "versions": {"torch": "2"},
    }
    (speed / "translate-cpu.json").write_text(
        json.dumps({**output, "rounds": 7, "steal": 0.01, "cases": [case]}), "utf-8"
    )
    memory = {**output, "sentences": 1000, "contenders": {"regard": {"peak_rss_mib": 700.5, "seconds": 10.0}}}
    (speed / "translate-memory.json").write_text(json.dumps(memory), "utf-8")
    (speed / "other.json").write_text(
        json.dumps({**output, "import": {"seconds": {"median": 0.1, "min": 0.1, "max": 0.2}}}), "utf-8"
    )
    page = isolated_script.build_page()
    assert "### Translation on a CPU\n" in page
    assert "| 16 | 4 | transformers | 1,234 (1,200 to 1,300) |  | 1.51 (1.4 to 1.6) |" in page
    assert "| regard | 700.5 | 10 |" in page
    assert "| import seconds | 0.1 (0.1 to 0.2) |" in page
    assert "`python benchmarks/translate.py --memory`" not in page  # measured now


def test_busy_hosts_merged_and_handwritten_cases_are_marked(isolated_script, tmp_path):
    speed = tmp_path / "speed"
    speed.mkdir()
    run = {"command": "python benchmarks/vision.py", "date": "2026-01-02"}
    cases = [
        {"model": "a", "measured": run | {"load": 0.4}},
        {"model": "b", "measured": run | {"load": 2.01}},
        {"model": "c", "measured": {"command": "python benchmarks/vision.py --keep", "date": "2026-01-01"}},
        {"model": "d", "measured": run | {"source": "entered by hand"}},
    ]
    cases = [case | {"contenders": {"regard": {"per_second": 3.0}}} for case in cases]
    (speed / "vision-cpu.json").write_text(json.dumps(run | {"merged": True, "cases": cases}), "utf-8")
    page = isolated_script.build_page()
    assert "| a | regard | 3 | 0.4 |\n" in page
    assert "| b | regard | 3 | **2.0, busy** |\n" in page
    assert "| c | regard | 3 | not kept |\n" in page
    assert "- put together from several runs: see below the table\n" in page
    found = page.split("Not from the run above:\n\n")[1].split("\n\n")[0].strip().split("\n")
    assert found == [
        "- c: 2026-01-01, `python benchmarks/vision.py --keep`",
        "- d: entered by hand, 2026-01-02, `python benchmarks/vision.py`",
    ]


def test_named_timings_are_shown_with_ratios(isolated_script, tmp_path):
    speed = tmp_path / "speed"
    speed.mkdir()
    one, two = {"median": 1.0, "min": 1.0, "max": 1.0}, {"median": 1.5, "min": 1.25, "max": 1.75}
    contenders = {
        "regard": {"tokens_per_second": 3000.0, "regard_speedup": one},
        "loop": {"regard_speedup": two, "same": "1/1"},
    }
    record = {"date": "2026-01-01", "decoding": [{"batch": 1, "beam_size": 4, "contenders": contenders}]}
    (speed / "recurrent-cpu.json").write_text(json.dumps(record | {"written": [{"bias": 0.5, "read": 0.9}]}), "utf-8")
    page = isolated_script.build_page()
    assert "Decoding:\n\n| batch | beam_size | contender | tokens per second | regard / it | same |" in page
    assert "| 1 | 4 | regard | 3,000 | 1 (1 to 1) |  |" in page
    assert "| 1 | 4 | loop |  | 1.5 (1.25 to 1.75) | 1/1 |" in page
    assert "Written:\n\n| bias | read |\n| --- | --- |\n| 0.5 | 0.9 |" in page


def test_separate_machine_entry_is_shown(isolated_script, tmp_path):
    speed = tmp_path / "speed"
    speed.mkdir()
    machine = {"date": "2026-01-01", "command": "python benchmarks/reinforce.py", "cpu": "A CPU", "cores": 2}
    (speed / "reinforce.json").write_text(json.dumps({"machine": machine, "mean": 0.5}), "utf-8")
    page = isolated_script.build_page()
    assert "$ python benchmarks/reinforce.py\n```\n\n- 2026-01-01, A CPU\n" in page
    assert "machine cores" not in page
    assert "| mean | 0.5 |" in page


def test_columns_are_the_scores_of_the_metric_module(script):
    assert set(script.METRICS) == {
        name for name in ("bleu", "bleu_lower", "bleu_tokenized", "chrf") if name in bleu.__doc__
    }


# -- before the Transformer --------------------------------------------------------------------------------------------

LENGTHS = [{"from": 1, "to": 5, "count": 37, "bleu": 30.004, "bleu_tokenized": 41.004},
           {"from": 31, "to": None, "count": 2, "bleu": 9.0, "bleu_tokenized": 12.0}]  # fmt: skip


def seq2seq_run(place, value, seed=1, pair=("de", "en")):
    run_folder(place, seed, value)
    evaluation = measured(value)
    evaluation["results"]["test_2016_flickr"] |= {"by_length": LENGTHS}
    (place / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")
    greedy = measured(value - 1)
    greedy["results"] = {"test_2016_flickr": greedy["results"]["test_2016_flickr"] | {"beam_size": 1}}
    (place / "greedy.json").write_text(json.dumps(greedy), "utf-8")
    data = {"corpus": "multi30k", "source": pair[0], "target": pair[1], "style": "moses"}
    (place / "recipe.json").write_text(json.dumps({"name": "seq2seq_multi30k", "data": data}), "utf-8")
    return place


def test_seq2seq_run_is_only_in_its_section_with_lengths(isolated_script, tmp_path):
    assert "| GRU, fixed context vector, no attention |  | not measured yet |" in isolated_script.build_page()
    for seed, value in ((1, 39.0), (2, 40.0)):
        folder = seq2seq_run(tmp_path / f"run{seed}", value, seed)
        words = ["add", str(folder), "--name", f"nmt-de-en-seq2seq-{seed}", "--system", "GRU", "--command", "x"]
        assert isolated_script.main(words) == 0
    record = json.loads((tmp_path / "results" / "nmt-de-en-seq2seq-1.json").read_text(encoding="utf-8"))
    assert record["by_length"]["test_2016_flickr"][0] == LENGTHS[0] | {"bleu": 30.0, "bleu_tokenized": 41.0}
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    section = page[page.index("## Before the Transformer") : page.index("## Runs")]
    greedy, beams = section[: section.index("### Multi30k EN-DE")].split("Search: ")[1:]
    assert greedy.startswith("greedy.")
    assert beams.startswith("beam 5, length penalty 1.")
    assert "| system | parameters | BLEU | seeds |" in greedy  # lengths were recorded with the beam
    assert "| system | parameters | BLEU | 1-5 (37) | seeds |" in beams  # two sentences say nothing
    row = "| **GRU, fixed context vector, no attention** | 2,345,678 |"
    assert f"{row} 40.50 (40.00 to 41.00) | 1, 2 |" in greedy
    assert f"{row} 41.50 (41.00 to 42.00) | 41.0 (41.0" in beams
    assert section.count(row) == 2  # of one pair; the other is not measured
    assert section.count("| GRU, fixed context vector, no attention |  | not measured yet |") == 1
    assert "| GRU, attention: dot |" not in beams  # only the first table lists what is missing
    assert "multi30k DE-EN, test_2016" not in page[: page.index("## Before the Transformer")]


def test_published_seq2seq_numbers_are_in_their_section_with_their_metric(script):
    page = script.build_page()
    section = page[page.index("## Before the Transformer") : page.index("## Runs")]
    assert "| GRU, additive attention | 28.3 | greedy; lower-case spaCy tokens" in section
    assert "| RNNsearch-50* | 28.45 | 36.15 |" in section
    assert "RNNsearch-50*" not in page[: page.index("## Before the Transformer")]
    assert re.search(r"\| published: encoder-decoder with attention [ |]*\| 21.7 † \| 5.0 † \|", page)


def test_lecture_tables_are_shown_as_on_the_slides(script):
    page = script.build_page()
    words, images = page[: page.index("## Language")], page[page.index("## Images") : page.index("## Before")]
    assert "| Transformer big | 28.4 | 41.8 |" in words
    assert "| ImageNet | 88.55 ± 0.04 | 87.76 ± 0.03 | 85.30 ± 0.02 | 87.54 ± 0.02 | 88.4/88.5* |" in images
    assert "| TPUv3-core-days | 2.5k | 0.68k | 0.23k | 9.9k | 12.3k |" in images
    assert re.search(r"\| published: ViT-H/14, pre-trained on JFT-300M[^|]*[ |]*\| 99.5 \|", images)
    assert "| DPT-Hybrid (ViT-Hybrid) | 49.02 | 83.11 |" in images
    lines = json.loads(script.PUBLISHED.read_text(encoding="utf-8"))
    slide = [line for line in lines if line.get("section") == "lecture vit"]
    assert len({line["corpus"] for line in slide}) == 8
    for line in slide:  # the number that is kept is the one that is shown
        number = line["on_slide"].split()[0].split("/")[0]
        assert line["value"] == pytest.approx(float(number.removesuffix("k")) * (1000 if number.endswith("k") else 1))


def test_commands_use_settings_of_their_recipes(script):
    from shlex import split

    from results_seq2seq import SYSTEMS, train_command

    from regard.training.recipe import load_recipe, override_recipe

    for system in SYSTEMS:
        words = split(train_command("en-de", system))
        recipe = override_recipe(load_recipe(words[2]), words[3 : words.index("--out")])
        assert (recipe.data.source, recipe.data.target) == ("en", "de")
        assert (recipe.data.vocab_size, recipe.data.style, recipe.task.beam_size) == (10_000, "moses", 5)


# -- runs that do not translate ----------------------------------------------------------------------------------------


ROUGE = {f"summarise_{k}": v for k, v in {"rouge1": 60.25, "rouge1_signature": "stemmed", "loss": 2.0}.items()}
REPORTS = {  # of every task: its data, what its report holds, and what stands in the file
    "language_modeling": (
        {"name": "plain", "corpus": "/somewhere/private/plays.txt", "tokenizer": "char"},
        {"loss": 1.44449, "perplexity": 4.24, "accuracy": 0.5857, "bits_per_byte": 2.0839, "tokens": 9, "context": 256},
        {("loss", "character", 1.4445), ("perplexity", "", 4.24), ("accuracy", "character", 0.5857),
         ("bits_per_byte", "", 2.0839)},
    ),
    "masked_lm": (
        {"name": "sentences", "corpora": ["brown", "tatoeba"]},
        {"loss": 1.5, "accuracy": 0.66, "words": 4821, "nsp_accuracy": 0.9, "pairs": 4},
        {("loss", "masked token", 1.5), ("accuracy", "masked token", 0.66), ("nsp_accuracy", "", 0.9)},
    ),
    "classification": (
        {"name": "labelled", "corpus": "sst2"},
        {"loss": 0.5, "accuracy": 0.8, "macro_f1": 0.79, "matthews_correlation": 0.6, "texts": 1821},
        {("loss", "text", 0.5), ("accuracy", "text", 0.8), ("macro_f1", "", 0.79), ("matthews_correlation", "", 0.6)},
    ),
    "reinforced_classification": (
        {"name": "labelled", "corpus": "sst2"},
        {"loss": 0.5, "accuracy": 0.8, "macro_f1": 0.79, "matthews_correlation": 0.6, "texts": 1821},
        {("loss", "text", 0.5), ("accuracy", "text", 0.8), ("macro_f1", "", 0.79), ("matthews_correlation", "", 0.6)},
    ),
    "symbol_prediction": (
        {"name": "symbols"},
        {"loss": 0.5, "accuracy": 0.8, "rows": 64},
        {("loss", "answer", 0.5), ("accuracy", "answer", 0.8)},
    ),
    "pair_classification": (
        {"name": "labelled", "corpus": "mrpc"},
        {"loss": 0.5, "accuracy": 0.8, "macro_f1": 0.79, "matthews_correlation": 0.6, "texts": 1821},
        {("loss", "text", 0.5), ("accuracy", "text", 0.8), ("macro_f1", "", 0.79), ("matthews_correlation", "", 0.6)},
    ),
    "tagging": (
        {"name": "tagged", "corpus": "conll2000"},
        {"loss": 0.1, "accuracy": 0.95, "precision": 0.9, "recall": 0.9, "f1": 0.93, "words": 7},
        {("loss", "word", 0.1), ("accuracy", "word", 0.95), ("f1", "", 0.93)},
    ),
    "extractive_qa": (
        {"name": "questions", "corpus": "babi", "tasks": [1, 2, 3]},
        {"loss": 0.1, "exact_match": 0.9, "f1": 0.95, "questions": 3000},
        {("loss", "question", 0.1), ("exact_match", "", 0.9), ("f1", "", 0.95)},
    ),
    "story_answering": (
        {"name": "stories", "corpus": "babi", "size": "1k", "tasks": []},
        {"error": 0.174, "failed": 13.0, "accuracy": 0.826, "accuracy_1": 1.0, "loss": 0.5, "questions": 20000},
        {("loss", "question", 0.5), ("accuracy", "question", 0.826), ("error", "", 17.4), ("failed", "", 13.0)},
    ),
    "chunking": (
        {"name": "bracketed", "corpus": "conll2000"},
        {"loss": 0.1, "token_accuracy": 0.9, "accuracy": 0.94, "f1": 0.92, "sentences": 2012},
        {("loss", "bracket decision", 0.1), ("accuracy", "word", 0.94), ("f1", "", 0.92)},
    ),
    "text_to_text": (
        {"name": "mixture", "tasks": ["translate(corpus='tatoeba', name='tatoeba')", "summarize"]},
        {"loss": 2.0, "tokens": 5, "beam_size": 4, "length_penalty": 1.0, "score": 50.0, "sentiment_accuracy": 78.0,
         "sentiment_accuracy_signature": "the label itself", "pronounce_wer": 22.5,
         "pronounce_wer_signature": "all sounds right", "pronounce_words": 77.5, **ROUGE},
        {("loss", "token", 2.0), ("accuracy", "text", 0.78), ("wer", "", 22.5), ("rouge1", "", 60.25)},
    ),
    "word2vec": ({"name": "words", "corpora": ["tatoeba"]}, {"loss": 6.85, "words": 3},
              {("loss", "word, positives and negatives", 6.85)}),
    "bidirectional_lm": ({"name": "words", "corpora": ["brown"]},
        {"loss": 4.3, "perplexity": 74.0, "accuracy": 0.3, "tokens": 3},
             {("loss", "word", 4.3), ("perplexity", "", 74.0), ("accuracy", "word", 0.3)}),
    "pronunciation": (
        {"name": "pronounced", "corpus": "cmudict", "stress": False},
        {"loss": 0.2, "perplexity": 1.2, "accuracy": 0.95, "tokens": 90, "words": 12, "wer": 25.5,
         "wer_signature": "all sounds right", "per": 6.1, "per_signature": "edits / sounds",
         "beam_size": 4, "length_penalty": 1.0},
        {("loss", "phoneme", 0.2), ("perplexity", "", 1.2), ("accuracy", "phoneme", 0.95), ("wer", "", 25.5),
         ("per", "", 6.1)},
    ),
    "reinforced_pronunciation": (
        {"name": "pronounced", "corpus": "cmudict"},
        {"loss": 0.3, "words": 12, "wer": 30.0, "per": 7.0},
        {("loss", "phoneme", 0.3), ("wer", "", 30.0), ("per", "", 7.0)},
    ),
    **{
        task: (
            {"name": "speech", "corpus": "fsdd"},
            {"loss": 0.3, "recordings": 50, "wer": 0.05, "ler": 0.04, "words": 9, "exact_match": 0.8},
            {("loss", "label", 0.3), ("wer", "", 5.0), ("ler", "", 4.0), ("exact_match", "", 0.8)},
        )
        for task in (
            *("ctc_speech_recognition", "speech_recognition"),
            *("joint_speech_recognition", "reinforced_speech_recognition"),
        )
    },
    **{
        task: (
            {"name": "image_classification", "path": "cifar10"},
            {"loss": 0.2, "accuracy": 0.95, "top5": 0.99, "images": 100},
            {("loss", "image", 0.2), ("accuracy", "image", 0.95), ("top5", "", 0.99)},
        )
        for task in ("image_classification", "distillation", "glimpse_classification")
    },
    **{
        task: (
            {"name": "image_classification", "path": "mnist"},
            {"loss": 0.5, "bits_per_dim": 0.7213, "images": 100},
            {("loss", "dimension", 0.5), ("bits_per_dim", "", 0.7213)},
        )
        for task in ("image_generation", "super_resolution")
    },
    "variational_image_generation": (
        {"name": "binarized_images", "path": "mnist"},
        {"loss": 99.5, "bound": 99.5, "reconstruction": 80.0, "kl": 19.5, "images": 100},
        {("bound", "", 99.5), ("kl", "", 19.5)},
    ),
    "semantic_segmentation": (
        {"name": "camvid"},
        {"loss": 0.5, "miou": 0.6, "pixel_accuracy": 0.9, "mean_accuracy": 0.7, "images": 233},
        {("loss", "pixel", 0.5), ("miou", "", 0.6), ("pixel_accuracy", "", 0.9)},
    ),
    "object_detection": (
        {"name": "bccd"},
        {"loss": 2.5, "ap": 0.5, "ap50": 0.8, "ap75": 0.6, "ar_100": 0.7, "images": 72},
        {("loss", "image", 2.5), ("ap", "", 0.5), ("ap50", "", 0.8), ("ap75", "", 0.6)},
    ),
    "depth_estimation": (
        {"name": "rendered_depth"},
        {"loss": 0.1, "abs_rel": 0.2, "rmse": 0.5, "delta1": 0.7, "delta2": 0.8, "images": 200},
        {("loss", "image", 0.1), ("abs_rel", "", 0.2), ("rmse", "", 0.5), ("delta1", "", 0.7)},
    ),
    **dict.fromkeys(
        ("captioning", "reinforced_captioning"),
        (
            {"name": "flickr8k"},
            {"loss": 2.9, "bleu1": 61.0, "bleu2": 43.0, "bleu3": 30.0, "bleu4": 20.0, "cider": 0.5, "pictures": 1000},
            {("loss", "word", 2.9), ("bleu1", "", 61.0), ("bleu2", "", 43.0), ("bleu3", "", 30.0),
             ("bleu4", "", 20.0), ("cider", "", 0.5)},
        ),
    ),
    "visual_question_answering": (
        {"name": "scene_questions"},
        {"loss": 0.5, "accuracy": 0.8, "accuracy_count": 0.7, "accuracy_side": 0.9, "questions": 4000},
        {("loss", "question", 0.5)}
        | {("accuracy", unit, value) for unit, value in (("question", 0.8), ("count", 0.7), ("side", 0.9))},
    ),
    "panoptic_segmentation": (
        {"name": "camvid"},
        {"loss": 2.5, "pq": 0.5, "sq": 0.8, "rq": 0.6, "pq_things": 0.7, "images": 233},
        {("loss", "image", 2.5), ("pq", "", 0.5), ("sq", "", 0.8), ("rq", "", 0.6)},
    ),
    "point_segmentation": (
        {"name": "point_scenes"},
        {"miou": 0.5, "point_accuracy": 0.8, "mean_accuracy": 0.6, "loss": 0.4, "clouds": 250},
        {("loss", "point", 0.4), ("miou", "", 0.5), ("point_accuracy", "", 0.8)},
    ),
    "audio_classification": ({"name": "labeled_audio", "corpus": "words"},
                             {"loss": 0.3, "accuracy": 0.9, "recordings": 300},
                             {("loss", "recording", 0.3), ("accuracy", "recording", 0.9)}),
    "point_classification": ({"name": "shapes"}, {"loss": 0.3, "accuracy": 0.9, "clouds": 1000},
                             {("loss", "cloud", 0.3), ("accuracy", "cloud", 0.9)}),
    "graph_classification": ({"name": "tu", "dataset": "mutag", "path": "graphs_tu"},
                             {"loss": 0.3, "accuracy": 0.9, "graphs": 18},
                             {("loss", "graph", 0.3), ("accuracy", "graph", 0.9)}),
    "graph_regression": ({"name": "esol", "path": "graphs_esol"},
                         {"loss": 0.3, "rms_error": 0.7, "mae": 0.5, "graphs": 113},
                         {("loss", "graph", 0.3), ("rms_error", "", 0.7), ("mae", "", 0.5)}),
    "node_classification": ({"name": "citations", "dataset": "cora"}, {"loss": 0.3, "accuracy": 0.8, "nodes": 1000},
                            {("loss", "node", 0.3), ("accuracy", "node", 0.8)}),
    "place_classification": ({"name": "land_mask", "path": "land_mask"},
                             {"loss": 0.1, "accuracy": 0.95, "low_latitudes": 0.96, "places": 50000},
                             {("loss", "place", 0.1), ("accuracy", "place", 0.95), ("low_latitudes", "", 0.96)}),
    "handwriting": ({"name": "strokes", "corpus": "uji"}, {"loss": -2.5, "points": 90, "lines": 3},
                    {("loss", "point", -2.5)}),
    "tapes": ({"name": "copy_tape", "bits": 8}, {"wrong_bits": 1.5, "loss": 0.1, "wrong_bits_20": 1.5, "sequences": 9},
              {("loss", "bit", 0.1), ("wrong_bits", "all sizes", 1.5), ("wrong_bits", "size 20", 1.5)}),
    "arithmetic": ({"name": "arithmetic", "digits": 8},
        {"loss": 0.1, "accuracy": 0.99, "exact_match": 0.9, "tokens": 5},
                   {("loss", "digit", 0.1), ("accuracy", "digit", 0.99), ("exact_match", "", 0.9)}),
    "decision": (
        {"name": "control", "episodes": 1000},
        {"loss": 0.2, "return": 58.7, "episodes": 50, "data_best": 67.46,
         "rollouts": [{"target_return": 3.06, "return": 1.9},
                      {"target_return": 67.46, "return": 58.7, "return_std": 2.0}]},
        {("return", "target 3.1", 1.9), ("return", "target 67.5", 58.7)},
    ),
}  # fmt: skip


def language_run(place, task, seed=1, **changes):
    data, report, _ = REPORTS[task]
    run_folder(place, seed)
    evaluation = measured(1.0) | {"results": {"test": report | changes}}
    (place / "recipe.json").write_text(json.dumps({"name": "some", "task": {"name": task}, "data": data}), "utf-8")
    (place / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")
    return place


def test_every_task_has_a_section():
    assert set(TASKS) <= set(REPORTS) | {"translation", "reinforced_translation"}  # both are translations


@pytest.mark.parametrize("task", REPORTS)
def test_run_of_any_task_becomes_a_file_and_a_table(isolated_script, tmp_path, task):
    words = ["add", str(language_run(tmp_path / "run", task)), "--name", "one", "--system", "ours", "--command", "x"]
    assert isolated_script.main(words) == 0
    record = json.loads((tmp_path / "results" / "one.json").read_text(encoding="utf-8"))
    assert {(s["metric"], s.get("unit", ""), s["value"]) for s in record["scores"]} == REPORTS[task][2]
    assert str(tmp_path) not in json.dumps(record)
    assert "private" not in json.dumps(record)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert f"### {record['corpus']}, test" in page
    images = (
        *("image_classification", "glimpse_classification", "distillation", "image_generation", "super_resolution"),
        *("semantic_segmentation", "object_detection", "panoptic_segmentation", "depth_estimation"),
        *("captioning", "reinforced_captioning"),
        "variational_image_generation",
        "visual_question_answering",
    )
    space = (
        "point_classification",
        "point_segmentation",
        "graph_classification",
        "graph_regression",
        "node_classification",
    )
    section = "## Images" if task in images else "## Language"
    section = "## Points, graphs, places" if task in (*space, "place_classification") else section
    assert "| **ours** |" in page[page.index(section) : page.index("## Runs")]
    assert "### one\n" in page[page.index("## Runs") :]


@pytest.mark.parametrize(
    ("task", "counted", "item"),
    [
        ("semantic_segmentation", "233 images", "image"),  # its loss is per pixel
        ("point_segmentation", "250 clouds", "cloud"),  # per point
        ("image_classification", "100 images", "image"),
        ("masked_lm", "4,821 masked tokens", "masked token"),
    ],
)
def test_the_items_of_a_split_are_counted_not_what_the_loss_is_divided_by(
    isolated_script, tmp_path, task, counted, item
):
    folder = language_run(tmp_path / "run", task)
    assert isolated_script.main(["add", str(folder), "--name", "one", "--system", "ours", "--command", "x"]) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert f"\n- {counted}\n" in page
    assert f"123,457 {item}s/s" in page


def test_different_metrics_are_in_different_columns(isolated_script, tmp_path):
    for name, task in (("a", "tagging"), ("b", "chunking")):
        folder = language_run(tmp_path / name, task)
        assert isolated_script.main(["add", str(folder), "--name", name, "--system", name, "--command", "x"]) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| system | nats per word | nats per bracket decision | word accuracy % | F1 % | parameters |" in page
    assert "| **a** | 0.1 |  | 95.0 | 93.0 |" in page
    assert "| **b** |  | 0.1 | 94.0 | 92.0 |" in page


def test_seeds_of_a_language_model_share_a_row_with_published_numbers(isolated_script, tmp_path, monkeypatch):
    line = {"system": "theirs", "corpus": "sst2", "split": "test", "metric": "accuracy", "unit": "text", "value": 0.935}
    (tmp_path / "published.json").write_text(json.dumps([line | {"where": "a memory", "checked": False}]), "utf-8")
    monkeypatch.setattr(isolated_script, "PUBLISHED", tmp_path / "published.json")
    assert "| **Regard** | not measured yet |" in isolated_script.build_page()
    for seed, value in ((1, 0.8), (2, 0.825), (10, 0.81)):
        folder = language_run(tmp_path / f"run{seed}", "classification", seed, accuracy=value)
        words = ["add", str(folder), "--name", f"bert-sst2-pretrained-{seed}", "--system", "BERT", "--command", "x"]
        assert isolated_script.main(words) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| published: theirs |  | 93.5 † |" in page
    assert "| **BERT** | 0.5 (0.5 to 0.5) | 81.2 (80.0 to 82.5) | 79.0 (79.0 to 79.0) |" in page
    assert "| 1, 2, 10 |" in page


def test_handwritten_result_may_lack_fields(isolated_script, tmp_path):
    (tmp_path / "results").mkdir()
    score = {
        "split": "val",
        "metric": "accuracy",
        "unit": "occurrence",
        "value": 0.911,
        "std": 0.001,
        "system": "layer 1",
    }
    record = {"name": "probe", "system": "probe", "command": "x", "seed": None, "machine": "one core"}
    record |= {"date": "2026-01-01", "corpus": "brown", "scores": [score]}
    (tmp_path / "results" / "probe.json").write_text(json.dumps(record), "utf-8")
    page = isolated_script.build_page()
    assert "| **layer 1** | 91.1 ± 0.1 | not recorded |" in page
    assert "- seed: not recorded\n- machine: one core\n- date: 2026-01-01\n\n## " in page


def test_losses_and_scores_of_one_text_task_share_a_row(isolated_script, tmp_path):
    folder = language_run(tmp_path / "run", "text_to_text")
    recipe = {"name": "x", "task": {"name": "text_to_text"}, "data": {"name": "mixture", "tasks": ["pronounce"]}}
    (folder / "recipe.json").write_text(json.dumps(recipe), "utf-8")
    assert isolated_script.main(["add", str(folder), "--name", "one", "--system", "T5", "--command", "x"]) == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| **T5** | 2.0 | 22.5 | 2,345,678 | 1 |" in page
    assert "Search: beam 4, length penalty 1.\n\n| system |" in page


def test_a_table_has_one_search_and_says_which(isolated_script, script):
    def score(beam_size, value, **more):
        search = {} if beam_size is None else {"beam_size": beam_size, "length_penalty": 1.0}
        return {"split": "test", "metric": "bleu", "value": value, "signature": "s", "sentences": 3, **search, **more}

    common = {"seed": 1, "machine": "m", "date": "2026-01-01", "corpus": "c", "command": "x", "parameters": 5}
    pair = {"source": "en", "target": "de", "style": "raw"}
    runs = [common | {"name": f"r{n}", "system": f"s{n}", "scores": [score(n, 10.0 + n)]} for n in (1, 4, 5)]
    no_search = common | {"name": "b", "system": "baseline", "scores": [score(None, 9.0)]}
    (isolated_script.RUNS).mkdir()
    for kind in ({"task": "text_to_text"}, pair):
        for run in [*runs, *([no_search] if "task" in kind else [])]:
            (isolated_script.RUNS / f"{run['name']}.json").write_text(json.dumps(run | kind), "utf-8")
        page = isolated_script.build_page()
        tables = page[page.index("## Translation" if kind is pair else "## Language") :].split("Search: ")[1:4]
        assert [part.partition(".")[0] for part in tables] == [
            "greedy",
            "beam 4, length penalty 1",
            "beam 5, length penalty 1",
        ]
        for n, part in zip((1, 4, 5), tables, strict=True):
            rows = part.partition("\n- ")[0]
            assert [f"**s{m}**" in rows for m in (1, 4, 5)] == [m == n for m in (1, 4, 5)]
            assert ("**baseline**" in rows) == (n == 1 and "task" in kind)
        for file in isolated_script.RUNS.iterdir():
            file.unlink()


def test_models_are_shown_beside_baselines_and_the_page_claims_no_single_look(script):
    page = script.build_page()
    summaries = page[page.index("### summarize, test") :].split("###")[1]
    assert "| **the first 160 words of what is read (baseline, no model)** | 60.5 | 49.5 | 51.4 |" in summaries
    assert "| **T5, 5 + 5 layers of 384, three tasks** | 52.37 | 41.38 | 44.86 |" in summaries
    assert "once" not in page[page.index("## Images") :].partition("###")[0]


def test_numbers_of_the_explorer_are_those_of_its_benchmark(script):
    text = " ".join((ROOT / "docs" / "explorer.md").read_text(encoding="utf-8").split())
    found = json.loads((script.SPEED / "explorer-frontend.json").read_text(encoding="utf-8"))
    for said in (
        f"With {found['tokens']:,} tokens, {found['layers']} layers and {found['heads']} heads",
        f"all {found['thumbnails']} thumbnails were drawn {found['all_s']:.2f} s after",
        f"with its exact row in {found['hover_ms']['median']:.0f} ms (median)",
        f"the browser used {found['page_mib']} MiB",
        f"{found['column_ms']['median']:.0f} ms for the mean of {found['heads']} heads",
        found["date"],
    ):
        assert said in text


def test_task_without_a_section_is_refused(isolated_script, tmp_path, capsys):
    folder = language_run(tmp_path / "run", "word2vec")
    (folder / "recipe.json").write_text(
        json.dumps({"name": "x", "task": {"name": "new"}, "data": {"name": "y"}}), "utf-8"
    )
    assert isolated_script.main(["add", str(folder), "--name", "x", "--command", "y"]) == 1
    assert "there is no task 'new'" in capsys.readouterr().err


def test_every_benchmark_has_a_title(script):
    assert {file.stem for file in script.SPEED.glob("*.json")} <= script.BENCHMARK_TITLES.keys()


def test_a_row_of_folds_says_how_many_and_a_published_error_shares_its_column(script):
    from results_tables import format_seeds
    from results_tasks import space_section

    assert format_seeds([{"seed": 1, "fold": 0}, {"seed": 1, "fold": 1}]) == "1 (2 folds)"
    assert format_seeds([{"seed": 1}, {"seed": 2}]) == "1, 2"
    score = {"split": "test", "metric": "rms_error", "value": 0.8}
    run = {"system": "ours", "corpus": "graphs_esol", "task": "graph_regression", "seed": 1, "scores": [score]}
    line = {"system": "theirs", "corpus": "graphs_esol", "unit": "graph", "where": "a paper", "checked": True}
    page = "\n".join(space_section([run], [line | score | {"value": 0.9}]))
    assert "| system | RMSE | seeds |" in page
    assert "| published: theirs | 0.9 |" in page
