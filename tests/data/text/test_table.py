"""Tables as spreadsheets, editors and other programs write them."""

import gzip
import json
import re
import sys
import types

import pytest

from regard.core.errors import BadInput
from regard.data.text.labeled_text import LabeledText, find_columns
from regard.data.text.table import pick_columns, read_lines, read_table, read_text

ROWS = [("a good film", "pos"), ("an awful, long film", "neg"), ("naïve", "pos")]


def csv_text(delimiter=",", end="\n", between=""):
    rows = ["text", "label"], *ROWS
    return f"{between}{end}".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows) + end


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("own.csv", csv_text().encode()),
        ("own.csv", b"\xef\xbb\xbf" + csv_text(end="\r\n").encode()),  # as spreadsheets save "CSV UTF-8"
        ("own.csv", csv_text(";").encode()),
        ("own.csv", ("sep=;\n" + csv_text(";")).encode()),
        ("own.csv", csv_text("\t").encode()),
        ("own.csv", csv_text(end="\r").encode()),
        ("own.csv", ("\n\n" + csv_text(between="\n  \n,")).encode()),  # blank lines, cells without content
        ("OWN.CSV", csv_text().encode()),
        ("OWN.CSV.GZ", gzip.compress(csv_text().encode(), mtime=0)),
        ("own.tsv", b"\xef\xbb\xbf" + "\n".join("\t".join(row) for row in ROWS).encode()),
        ("own.tsv", "\r\n\r\n".join("\t".join(row) for row in (("text", "label"), *ROWS)).encode()),
        ("own.jsonl", b"\xef\xbb\xbf" + "\r\n".join(json.dumps({"text": a, "label": b}) for a, b in ROWS).encode()),
        ("own.jsonl", "\n".join(json.dumps({"n": None, "label": b, "x": [1], "Text": a}) for a, b in ROWS).encode()),
    ],
)
def test_a_table_is_read_however_it_was_saved(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    table = read_table(tmp_path / name, ["text", "label"])
    named = table.columns if "text" in table.columns else ("text", "label")
    assert [tuple(row[named.index(key)] for key in ("text", "label")) for row in table.rows] == ROWS


def test_a_key_that_some_lines_lack_is_an_empty_cell_and_the_line_is_left_out_where_it_is_needed(tmp_path, caplog):
    file = tmp_path / "own.jsonl"
    rows = [{"text": "a", "label": "x", "note": "only here"}, {"text": "b", "label": None}, {"text": "c", "label": 1.5}]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    assert read_table(file).rows == (("a", "x", "only here"), ("b", "", ""), ("c", "1.5", ""))
    found = pick_columns(read_table(file), ("text", "label"), "text label")
    assert [*found] == [(1, ("a", "x")), (3, ("c", "1.5"))]
    assert f"left out line 2 of {file}: label is empty" in caplog.text
    file.write_text('{"text": "a", "label": NaN}\n{"text": "b", "label": NaN}')
    with pytest.raises(BadInput, match=r"own\.jsonl, line 1: label is empty"):
        LabeledText(str(file)).splits()


def test_missing_values_of_a_parquet_file_are_named_by_row(tmp_path, monkeypatch):
    """Stands in for pyarrow, which is not needed otherwise: columns of Python values are all that is read from it."""

    class Columns(dict):
        column_names = property(lambda self: [*self])

        def column(self, name):
            return types.SimpleNamespace(to_pylist=lambda: self[name])

    stored = Columns(Text=["a", "b", "c"], label=["x", None, float("nan")], vectors=[[1], [2], [3]])
    fake = types.ModuleType("pyarrow")
    fake.parquet = types.ModuleType("pyarrow.parquet")
    fake.parquet.read_table, fake.ArrowException = lambda file: stored, RuntimeError
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake.parquet)
    table = read_table(tmp_path / "own.parquet")
    assert (table.columns, table.rows) == (("text", "label"), (("a", "x"), ("b", ""), ("c", "")))
    pairs = Columns(id=[1, 2], translation=[{"en": "a", "fr": "b"}, {"en": "c", "fr": "d"}])  # as Hugging Face has them
    fake.parquet.read_table = lambda file: pairs
    table = read_table(tmp_path / "own.parquet")
    assert (table.columns, table.rows) == (("en", "fr", "id"), (("a", "b", "1"), ("c", "d", "2")))
    fake.parquet.read_table = lambda file: stored
    stored["TEXT"] = ["d", "e", "f"]
    with pytest.raises(BadInput, match="2 columns are called 'text'"):
        read_table(tmp_path / "own.parquet")


def test_a_table_of_another_program_is_refused_with_what_to_do(tmp_path):
    for name, how in (("own.xlsx", "save the sheet as CSV"), ("own.json", "one object a line")):
        (tmp_path / name).write_bytes(b"[]")
        with pytest.raises(BadInput, match=how):
            find_columns(tmp_path / name)


def test_two_values_of_one_name_are_refused(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"text": "a"}\n{"text": "b", " Text": "c"}\n')
    with pytest.raises(BadInput, match=r"own\.jsonl, line 2: two values are called 'text'"):
        read_table(tmp_path / "own.jsonl")


def test_columns_with_spaces_in_their_names_are_found_and_read(tmp_path):
    (tmp_path / "own.csv").write_text("Review Text,It's Good\n" + "".join(f"film {n},{n % 2}\n" for n in range(30)))
    columns = find_columns(tmp_path / "own.csv")
    assert LabeledText(str(tmp_path / "own.csv"), columns=columns).read("all")[3] == ("film 3", "1")
    with pytest.raises(BadInput, match="no closing quotation"):
        LabeledText(str(tmp_path / "own.csv"), columns="text='review text label").splits()


def test_a_csv_without_names_is_said_to_be_one(tmp_path):
    (tmp_path / "own.csv").write_text("".join(f"a film of {n},{'good' if n % 2 else 'Bad'}\n" for n in range(30)))
    with pytest.raises(BadInput, match=r"first row must name the columns \(text,label\); it is a film of 0,bad"):
        find_columns(tmp_path / "own.csv")


def test_a_file_that_is_not_utf_8_is_named_with_its_line(tmp_path):
    (tmp_path / "own.csv").write_bytes("text,label\na,b\ncafé,x\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"own\.csv: byte 0xe9 in line 3 is not UTF-8; save it as UTF-8"):
        read_table(tmp_path / "own.csv")
    (tmp_path / "own.tsv").write_bytes("text\tlabel\n".encode("utf-16")[:-1])
    with pytest.raises(BadInput, match=r"own.tsv: it begins as UTF-16 and is not; save it as UTF-8"):
        read_lines(tmp_path / "own.tsv")
    for kind in ("utf-16", "utf-16-le", "utf-16-be"):  # as Excel writes "Unicode text"
        mark = "" if kind == "utf-16" else "\ufeff"
        (tmp_path / "own.tsv").write_bytes(f"{mark}text\tlabel\r\ncafé\tx\r\n".encode(kind))
        assert read_table(tmp_path / "own.tsv", ["text", "label"]).rows == (("café", "x"),)


@pytest.mark.parametrize(("name", "cell"), [("own.tsv", "\t"), ("own.csv", ",")])
def test_a_few_lines_with_other_columns_are_left_out_and_named(tmp_path, caplog, name, cell):
    rows = [f"film {n}{cell}good" for n in range(60)]
    rows[20] = rows[40] = f"one{cell}column{cell}more"
    (tmp_path / name).write_text("\n".join([f"text{cell}label", *rows]))
    assert len(read_table(tmp_path / name, ["text", "label"]).rows) == 58
    assert re.search(r"left out line 22 of .*: 3 columns; its first \w+ has 2.* \(and 1 more like it\)", caplog.text)
    (tmp_path / name).write_text("\n".join([f"text{cell}label", *rows[15:45]]))
    with pytest.raises(BadInput, match="line 7: 3 columns; its first"):
        read_table(tmp_path / name, ["text", "label"])


def test_lines_end_alike_whatever_they_end_with(tmp_path):
    for ending in ("\n", "\r\n", "\r"):
        (tmp_path / "a.txt").write_bytes(ending.join(["one", "two\u2028 and", "", "three", ""]).encode())
        assert read_lines(tmp_path / "a.txt") == ["one", "two\u2028 and", "", "three"]
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\rstill one\n")  # a line feed ends lines, so \r does not
    assert read_text(tmp_path / "a.txt") == "one\rstill one\n"


def test_folders_of_labels_may_stand_in_folders_of_splits_and_hidden_files_are_left_alone(tmp_path):
    for part, count in (("train", 6), ("test", 3)):
        for label in ("bad", "good"):
            place = tmp_path / part / label
            place.mkdir(parents=True)
            for n in range(count):
                (place / f"{n}.TXT").write_text(f"{label} {part} {n}")
            (place / ".hidden.txt").write_text("no")
    (tmp_path / "train" / ".git").mkdir()
    (tmp_path / "train" / ".git" / "x.txt").write_text("no")
    (tmp_path / "._train.csv").write_bytes(b"\0\xff")
    data = LabeledText(str(tmp_path))
    assert data.labels() == ["bad", "good"]
    assert {part: len(data.read(part)) for part in data.splits()} == {"train": 10, "val": 2, "test": 6}


def test_splits_may_be_in_tables_of_different_kinds(tmp_path):
    (tmp_path / "train.csv").write_text(csv_text())
    (tmp_path / "val.tsv").write_text("b\tneg\n")
    data = LabeledText(str(tmp_path))
    assert data.splits() == ["train", "val"]
    assert data.read("val") == [("b", "neg")]


def test_several_tables_of_a_split_are_all_read_and_what_is_not_is_named(tmp_path, caplog):
    for name in ("train.a.tsv", "train.b.tsv"):
        (tmp_path / name).write_text(f"{name}\tgood\nfilm\tbad\n")
    (tmp_path / "train.a.csv").write_text(csv_text())  # the same, saved once more
    (tmp_path / "other.tsv").write_text("a\tb\n")
    texts = [text for part in ("train", "val") for text, _ in LabeledText(str(tmp_path)).read(part)]
    assert sorted(texts) == ["film", "film", "train.a.tsv", "train.b.tsv"]
    assert "train.a.csv, other.tsv in " in caplog.text.replace("other.tsv, train.a.csv", "train.a.csv, other.tsv")
    assert "left out; what is read is train.a.tsv, train.b.tsv" in caplog.text
