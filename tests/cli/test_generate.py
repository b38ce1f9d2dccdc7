"""``regard generate``, called in this process and as a user calls it."""

import json
import sys
from dataclasses import fields
from io import TextIOWrapper

import pytest
import torch

import regard
from regard import cli
from regard.cli.generate import load_generator
from regard.core.errors import BadInput
from regard.modalities.text import Candidate, Text
from regard.models.gpt import GPT, Config
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tasks.text.translation import Translator
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import gpt2
from tests.stories.command import run

LINES = ["two dogs play in the snow, and a cat sleeps.", "über naïve 🐕 café", "no one is the end of it."]


def writer(**settings):
    torch.manual_seed(0)
    text = Tokenizer.train(LINES * 3, kind="bytes", size=300)
    model = GPT(
        Config(vocab=text.size, eos=text.eos, **{"width": 16, "heads": 2, "layers": 2, "length": 48} | settings)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return TextGenerator(model, text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "writer"
    regard.save(writer(), place)
    return place


@pytest.fixture(scope="module")
def write(folder):
    return regard.load(folder)


def call(*words):
    return cli.main([str(word) for word in words])


def test_text_follows_the_prompt_as_it_does_in_the_library(folder, write, capsys):
    for how, more in (
        ({"temperature": 0}, ["--temperature", 0]),
        ({"temperature": 0.8}, []),
        (
            {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 3},
            ["--top-k", 20, "--top-p", 0.9, "--min-p", 0.01, "--repetition-penalty", 1.2, "--seed", 3],
        ),
        ({"beam_size": 3}, ["--beam-size", 3]),
        ({"temperature": 0.8, "slide": True, "max_new_tokens": 60}, ["--slide", "--max-new-tokens", 60]),
    ):
        tokens = how.pop("max_new_tokens", 12)
        expected = write(["two dogs"], max_new_tokens=tokens, **how)[0]
        for stream in ([], ["--no-stream"]):
            given = [] if "--max-new-tokens" in more else ["--max-new-tokens", tokens]
            assert call("generate", "two dogs", "--model", folder, *given, *more, *stream) == 0
            assert capsys.readouterr().out == f"two dogs{expected}\n"


def test_several_texts_are_parted_by_an_empty_line(folder, write, capsys):
    assert call("generate", "two", "no", "--model", folder, "--max-new-tokens", 6, "--num-candidates", 2) == 0
    texts = write(["two", "no"], max_new_tokens=6, num_candidates=2, temperature=0.8)
    expected = [
        f"{prompt}{one.text}\n" for prompt, each in zip(("two", "no"), texts, strict=True) for one in each.candidates
    ]
    assert capsys.readouterr().out == "\n".join(expected)


def test_json_has_a_line_for_each_prompt(folder, write, capsys):
    options = ["--max-new-tokens", 8, "--num-candidates", 3, "--json"]
    assert call("generate", "two", "über 🐕", "--model", folder, *options) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = write.candidates(["two", "über 🐕"], max_new_tokens=8, num_candidates=3, temperature=0.8)
    assert [(row["number"], row["input"], row["text"]) for row in rows] == [
        (1, "two", found[0][0].text),
        (2, "über 🐕", found[1][0].text),
    ]
    assert [row["candidates"] for row in rows] == [[one.to_json() for one in each] for each in found]
    assert set(rows[0]["candidates"][0]) == {"text", "tokens", "score", "finish_reason"}
    assert {one["finish_reason"] for row in rows for one in row["candidates"]} <= {"length", "end"}


def test_stop_strings_may_be_written_with_escapes(tmp_path, capsys):
    text = Tokenizer.train(["ab\n" * 9], kind="char", size=20)
    model = GPT(Config(vocab=text.size, eos=text.eos, width=16, heads=2, layers=1, length=48))
    regard.save(TextGenerator(model, text), tmp_path / "m")
    assert (
        call(
            "generate", "a", "--model", tmp_path / "m", "--stop", "\\n", "--stop", "b", "--max-new-tokens", 40, "--json"
        )
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert set(row["text"]) <= {"a"}
    assert row["candidates"][0]["finish_reason"] == "stop"


def test_a_dash_is_stdin(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_bytes(b"two dogs\n")
    with open(tmp_path / "in.txt", "rb") as file:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(file))
        assert call("generate", "-", "--model", folder, "--max-new-tokens", 2) == 0
    assert capsys.readouterr().out.startswith("two dogs")


def test_lines_of_stdin_are_prompts_and_a_bad_one_is_the_only_one_lost(folder, write, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_bytes(b"two dogs\n\nno one\n" + b"\xff\n" + ("a cat " * 30).encode() + b"\nn\n")
    with open(tmp_path / "in.txt", "rb") as file:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(file))
        assert call("generate", "--model", folder, "--max-new-tokens", 6, "--json") == 1
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["number"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert ["candidates" in row for row in rows] == [True, False, True, False, False, True]
    alone = write.candidates(["no one"], max_new_tokens=6, temperature=0.8, numbers=[2])[0][0].text
    assert rows[2]["text"] == alone  # its number, not its company, decides what is drawn
    for said in (
        "regard: prompt 2 is empty",
        "prompt 4 is not UTF-8",
        "do not fit the model",
    ):
        assert said in err
    assert err.count("\n") == 3
    assert [f"regard: {row['error']}" for row in rows if "error" in row] == sorted(err.splitlines())
    assert [row["number"] for row in rows if "error" in row] == [2, 4, 5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([""], "prompt 1 is empty"),
        (["two dogs " * 20], "do not fit the model's 48"),
        (["two", "--max-new-tokens", "60"], "drop the oldest tokens (slide)"),
    ],
    ids=["empty", "long prompt", "long text"],
)
def test_what_cannot_be_written_is_one_clear_line(folder, words, said, capsys):
    for stream in ("--stream", "--no-stream"):
        assert call("generate", *words, "--model", folder, stream) == 1
        out, err = capsys.readouterr()
        assert said in err
        assert err.count("\n") == 1
        assert out in ("", "\n", f"{words[0]}\n")


def test_options_that_do_not_go_together_are_refused(folder, capsys):
    for words, said in (
        (["--stream", "--json"], "--stream prints one text"),
        (["--stream", "--num-candidates", "2"], "--stream prints one text"),
        (["--max-new-tokens", "0"], "--max-new-tokens"),
        (["--top-p", "1.5"], "--top-p"),
        (["--top-p", "0"], "--top-p must be above 0"),
        (["--seed", str(2**64)], "at most 64 bits"),
        (["--beam-size", "2", "--stop", "x"], "does not work with beam search"),
        (["--beam-size", "2", "--temperature", "0.5"], "temperature is for sampling; leave it out"),
        (["--length-penalty", "2"], "--length-penalty needs beam search"),
        (["--temperature", "0", "--num-candidates", "2"], "at temperature 0 all samples are the same"),
    ):
        assert call("generate", "two", "--model", folder, *words) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_which_model_is_meant(folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(folder)
    assert isinstance(load_generator(str(tmp_path / "run")), TextGenerator)
    regard.save(regard.build("gpt", vocab=10, width=8, heads=2, layers=1), tmp_path / "bare")
    with pytest.raises(BadInput, match="is a GPT, which cannot continue a text: it has no vocabulary"):
        load_generator(str(tmp_path / "bare"))
    text = Tokenizer.train(LINES, kind="bytes", size=280)
    regard.save(
        Translator(regard.build("transformer", vocab=text.size, width=8, heads=2, ffn=8), text), tmp_path / "translator"
    )
    with pytest.raises(BadInput, match="is a translator; use it with regard translate"):
        load_generator(str(tmp_path / "translator"))


def test_a_gpt2_folder_of_transformers_writes(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    made = writer()
    gpt2.save(tmp_path / "ours", made.model, made.text)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    made.text.save(tmp_path / "theirs")
    found = regard.load(tmp_path / "theirs")
    assert isinstance(found, TextGenerator)
    assert found(["two"], max_new_tokens=9, seed=1) == made(["two"], max_new_tokens=9, seed=1)
    assert call("generate", "two", "--model", tmp_path / "theirs", "--max-new-tokens", 9, "--temperature", 0) == 0
    assert capsys.readouterr().out == f"two{made(['two'], max_new_tokens=9, temperature=0)[0]}\n"
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    assert call("generate", "two", "--model", tmp_path / "theirs") == 1
    assert "it has no vocabulary (tokenizer.json)" in capsys.readouterr().err


def test_a_vocabulary_of_another_model_is_refused(folder, tmp_path, capsys):
    made = writer()
    gpt2.save(tmp_path / "m", made.model, Tokenizer.train(LINES * 40, kind="char", size=60))
    assert call("generate", "two", "--model", tmp_path / "m") == 1
    assert "use the tokenizer that the model" in capsys.readouterr().err


class QuestionAnswerer(TextToTextGenerator):
    """Says with which options it was asked."""

    def predict_numbered(self, batch, options, numbers):
        asked = {f.name: getattr(options, f.name) for f in fields(options) if getattr(options, f.name) != f.default}
        return [
            Text.from_candidates(
                [Candidate(f"{prompt.upper()} {n} {asked}", 0.0) for n in range(asked.get("num_candidates", 1))]
            )
            for prompt in batch
        ]


def test_answers_stand_by_themselves(folder, write, capsys, monkeypatch):
    monkeypatch.setattr(regard, "load", lambda name: QuestionAnswerer(writer().model, write.text))
    assert call("generate", "two", "no", "--model", folder) == 0
    assert capsys.readouterr().out == "TWO 0 {}\nNO 0 {}\n"
    assert call("generate", "two", "--model", folder, "--temperature", 0.5, "--max-new-tokens", 7) == 0
    assert capsys.readouterr().out == "TWO 0 {'sample': True, 'temperature': 0.5, 'max_new_tokens': 7}\n"
    assert call("generate", "two", "--model", folder, "--temperature", 0) == 0
    assert capsys.readouterr().out == "TWO 0 {'beam_size': 1}\n"
    assert call("generate", "two", "--model", folder, "--num-candidates", 5) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"TWO {n} {{'beam_size': 5, 'num_candidates': 5}}" for n in range(5)
    ]
    assert call("generate", "two", "--model", folder, "--slide") == 2
    assert "slide is for models that continue a text" in capsys.readouterr().err
    assert call("generate", "two", "--model", folder, "--stream") == 1
    assert "leave out --stream" in capsys.readouterr().err


def test_as_a_user_calls_it_and_text_comes_while_it_is_written(folder, write):
    done = run("generate", "--model", folder, "--max-new-tokens", "5", "-v", stdin="two\nüber\n".encode())
    assert done.status == 0
    texts = write(["two", "über"], max_new_tokens=5, temperature=0.8)
    assert done.out == f"two{texts[0]}\n\nüber{texts[1]}\n"
    assert "tokens/s" in done.err
    done = run("generate", "--model", folder, stdin=b"")
    assert done.status == 1
    assert "nothing to continue" in done.err


@pytest.mark.parametrize("view", [None, "decoder", "heads", "layers", "rollout"])
def test_what_is_written_can_be_seen(folder, write, view, tmp_path, capsys):
    picture = tmp_path / "a.svg"
    asked = [] if view is None else ["--view", view]
    assert call("see", "two dogs", "--model", folder, "--output", picture, "--max-new-tokens", 5, *asked) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"two dogs\n{write(['two dogs'], max_new_tokens=5, temperature=0)[0]}\n")
    assert out.endswith(f"drawn: {picture}\n")
    assert picture.read_text("utf-8").startswith("<?xml")


def test_whole_words_of_what_is_written_are_drawn(folder, tmp_path, capsys):
    picture = tmp_path / "a.svg"
    assert call("see", "two dogs playing", "--model", folder, "--max-new-tokens", 0, "--words", "-o", picture) == 0
    rows = [line.split("│")[0].strip() for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert rows[-2:] == ["dogs", "playing"]


def test_views_that_a_language_model_has_not_are_said(folder, tmp_path, capsys):
    for words, said in (
        (["--view", "cross"], "nothing to show for --view cross"),
        (["--view", "encoder"], "nothing to show for --view encoder"),
        (["--to", "de"], "not a translator"),
        (["--max-new-tokens", "0", "--layer", "7"], "there are 0 to 1"),
    ):
        assert call("see", "two dogs", "--model", folder, "-o", tmp_path / "a.png", *words) == 1
        assert said in capsys.readouterr().err
    assert call("see", "two dogs", "--model", folder, "-o", tmp_path / "a.html", "--max-new-tokens", 0) == 0
    assert "two" in (tmp_path / "a.html").read_text("utf-8")
    capsys.readouterr()
    assert call("see", "two dogs", "--to", "de", "--max-new-tokens", 5) == 1
    assert "leave out --max-new-tokens" in capsys.readouterr().err
