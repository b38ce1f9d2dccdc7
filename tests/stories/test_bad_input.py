"""Whatever is put in: one clear line on stderr, an honest exit status, no traceback, nothing half-written."""

import json
import shutil

import pytest

import regard
from regard.core.errors import BadInput
from tests.long_params import rest_is_long
from tests.stories.command import run

GOOD = "Two dogs are playing."
LONG = "a dog and " * 5000  # 50,000 characters

# Each alone: what is put in, the exit status, and what stderr says (None: nothing at all).
ALONE = {
    "empty line": (b"\n", 1, "nothing to translate"),
    "white space": (b" \t \xe2\x80\x83\n", 1, "nothing to translate"),
    "50,000 characters": (LONG.encode() + b"\n", 1, "line 1 has 50,000 characters, more than 20,000: left empty"),
    "emoji": ("🐕🐕 ❄️ 👨‍👩‍👧".encode() + b"\n", 0, None),
    "control characters": (b"two\x00 dogs\x07\n", 1, "line 1 holds control characters (U+0000): read as spaces"),
    "no UTF-8": (b"\xff\xfe dogs\n", 1, "line 1 is not UTF-8 (byte 0xFF at place 1): left empty"),
}


@pytest.mark.parametrize("case", rest_is_long(ALONE, "50,000 characters", "no UTF-8"))
def test_odd_input_alone(case, translator_folder, warm):
    stdin, status, said = ALONE[case]
    done = warm("translate", "--model", translator_folder, "--beam-size", 1, stdin=stdin)
    assert done.status == status
    assert len(done.complaints) == (0 if said is None else 1)
    assert said is None or (done.err.startswith("regard: ") and said in done.err)
    assert len(done.lines) == stdin.count(b"\n")


def test_one_bad_line_does_not_lose_the_other_199(translator_folder, tmp_path, warm):
    lines = [f"{n} dogs".encode() for n in range(200)]
    (tmp_path / "good.txt").write_bytes(b"\n".join(lines) + b"\n")
    lines[99] = b"\xc3\x28 broken"
    (tmp_path / "bad.txt").write_bytes(b"\n".join(lines) + b"\n")
    how = "translate", "--model", translator_folder, "--beam-size", 1
    good = warm(*how, "--file", tmp_path / "good.txt")
    bad = warm(*how, "--file", tmp_path / "bad.txt", "--output", tmp_path / "out.txt")
    written = (tmp_path / "out.txt").read_text("utf-8").split("\n")[:-1]
    assert (good.status, bad.status, bad.out) == (0, 1, "")
    assert bad.complaints[0].startswith("regard: line 100 is not UTF-8")
    assert bad.complaints[1].startswith("regard: written: ")
    assert len(bad.complaints) == 3  # the last is about speed
    assert "tokens/s" in bad.complaints[2]
    assert len(good.lines) == len(written) == 200
    assert good.lines[99] != "" == written[99]
    assert [n for n in range(200) if good.lines[n] != written[n]] == [99]


def test_odd_lines_among_others_keep_their_places(translator_folder, warm):
    odd = [b"", b"  ", "🐕 dogs".encode(), b"do\x00gs", b"\xff", LONG.encode(), b"x" * 300_000]
    stdin = b"".join(line + b"\n" + GOOD.encode() + b"\r\n" for line in odd)
    done = warm("translate", "--model", translator_folder, "--beam-size", 1, stdin=stdin)
    assert done.status == 1
    assert len(done.lines) == 2 * len(odd)
    assert len(set(done.lines[1::2])) == 1  # the good ones are translated alike, whatever stands between them
    assert [n for n, line in enumerate(done.lines) if not line] == [0, 2, 8, 10, 12]
    assert [line.split()[:3] for line in done.complaints] == [["regard:", "line", f"{n}"] for n in (7, 9, 11, 13)]


def test_files_that_cannot_be_read_or_written(translator_folder, tmp_path, warm):
    before = sorted(tmp_path.rglob("*"))
    translate = "translate", "--model", translator_folder
    cases = [
        ([*translate, GOOD, "--output", tmp_path], f"cannot write {tmp_path}: it is a folder"),
        ([*translate, GOOD, "--output", tmp_path / "no" / "out.txt"], f"there is no folder {tmp_path / 'no'}"),
        ([*translate, "--file", tmp_path / "none.txt"], f"there is no file {tmp_path / 'none.txt'}"),
        ([*translate, "--file", tmp_path], f"{tmp_path} is a folder, not a file"),
        ([*translate, GOOD, "--attention", tmp_path / "picture.bmp"], "end the name in .png, .svg or .html"),
        ([*translate, GOOD, "--attention", tmp_path / "no" / "a.png"], f"there is no folder {tmp_path / 'no'}"),
        (["eval", tmp_path / "none"], f"there is no folder {tmp_path / 'none'}"),
        (["eval", "nowhere"], "there is no folder nowhere; known by name: digits, digits-listen, en-de"),
        (["eval", "en-de", "-o", tmp_path / "none" / "x.json"], f"there is no folder {tmp_path / 'none'}"),
    ]
    for words, said in cases:
        done = warm(*words)
        assert (done.status, len(done.complaints)) == (1, 1), done
        assert said in done.err
    assert sorted(tmp_path.rglob("*")) == before


def _damaged(folder, kind, copy):
    shutil.copytree(folder, copy)
    weights, config = copy / "model.safetensors", copy / "config.json"
    if kind == "truncated weights":
        weights.write_bytes(weights.read_bytes()[:-1000])
    else:
        values = json.loads(config.read_text("utf-8"))
        values["config"]["width"] = 32
        config.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("truncated weights", "model.safetensors is damaged, cut short or changed"),
        ("another width in the config", "do not fit the config"),
    ],
)
def test_damaged_models(kind, said, translator_folder, tmp_path, warm):
    _damaged(translator_folder, kind, tmp_path / "copy")
    done = warm("translate", GOOD, "--model", tmp_path / "copy", "--output", tmp_path / "out.txt")
    assert (done.status, done.out, len(done.complaints)) == (1, "", 1)
    assert said in done.err
    assert not (tmp_path / "out.txt").exists()


def test_an_unknown_recipe_key_offers_the_nearest(tmp_path, warm):
    done = warm("train", "transformer_multi30k", "train.stepz=3", cwd=tmp_path)
    assert done.status == 1
    assert done.complaints == ["regard: no setting is called 'train.stepz'; did you mean 'steps'?"]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_half_written(translator_folder, corpus, tmp_path, warm):
    (tmp_path / "out.txt").write_text("as it was\n", encoding="utf-8")
    stdin = (GOOD.encode() + b"\n") * 400
    how = "translate", "--model", translator_folder, "--beam-size", 1
    done = warm(*how, "--output", tmp_path / "out.txt", stdin=stdin, file_size=2000)
    assert (done.status, len(done.complaints)) == (1, 1)
    assert f"cannot write {tmp_path / 'out.txt'}: file too large" in done.err
    assert (tmp_path / "out.txt").read_text("utf-8") == "as it was\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]

    train = "train", "transformer_multi30k", "--quick", f"data.corpus={corpus}", "data.style=raw"
    done = warm(*train, "--out", tmp_path / "run", file_size=16_000)
    assert done.status == 1
    assert "cannot save a checkpoint" in done.complaints[-1]
    assert "the disk is full" in done.complaints[-1] or "too large" in done.complaints[-1]
    left = [file for file in (tmp_path / "run").rglob("*") if file.suffix in (".part", ".safetensors", ".pt")]
    assert not left


def test_a_full_device_is_said_in_one_line(translator_folder, warm):
    how = "translate", GOOD, "--model", translator_folder, "--beam-size", 1
    done = warm(*how, "--output", "/dev/full")
    assert (done.status, done.complaints) == (1, ["regard: cannot write /dev/full: no space left on device"])
    with open("/dev/full", "wb") as full:
        done = run(*how, stdout=full)
    assert (done.status, len(done.complaints)) == (1, 1)
    assert "no space left on device" in done.err


@pytest.mark.parametrize("name", ["en-de", "shakespeare", "fill-en", "languages", "sounds-en", "digits", "fashion"])
@pytest.mark.parametrize(("given", "said"), [(None, "None"), (3, "a int")])
def test_what_is_no_list_is_one_line(name, given, said):
    with pytest.raises(BadInput, match=f"give a list of [a-z]+, not {said}"):
        regard.load(name)(given)


def test_a_seed_that_is_too_large_is_one_line_and_a_large_one_is_not():
    translate, write = regard.load("en-de"), regard.load("shakespeare")
    with pytest.raises(BadInput, match="at most 64 bits"):
        write(["ROMEO:"], max_new_tokens=3, seed=2**70)
    with pytest.raises(BadInput, match="at most 64 bits"):
        translate([GOOD], sample=True, seed=2**70)
    assert translate([GOOD], sample=True, seed=2**62) == translate([GOOD], sample=True, seed=2**62)
    assert len(write(["ROMEO:"], max_new_tokens=3, seed=2**62)) == 1


def test_wrong_usage_is_status_2(warm):
    for words, said in (
        (["translate", "--nonsense"], "--nonsense"),
        (["translate", GOOD, "--to", "de", "--top-k", "5"], "--top-k is for sampling; add --sample, or leave it out"),
        (["translate", GOOD, "--file", "x"], "either the text itself or --file"),
        (["see"], "INPUT"),
        (["nonsense"], "nonsense"),
        (["train"], "say which recipe"),
    ):
        done = warm(*words)
        assert (done.status, len(done.complaints), done.out) == (2, 1, ""), done
        assert said in done.err
