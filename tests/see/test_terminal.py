from __future__ import annotations

from unicodedata import east_asian_width

import numpy as np
import torch
from alignments import ENGLISH, GERMAN, cross

from regard.core.trace import Trace
from regard.see import text_heatmap, text_map
from regard.see.token_display import truncate_middle, visible


def test_a_line_for_each_output_word_with_its_best_match():
    lines = text_map(cross(), 0).splitlines()
    rows = lines[-len(GERMAN) :]
    assert all(f"{word} │" in line for word, line in zip(GERMAN, rows, strict=True))
    assert "verb" in rows[2].split("│")[2]
    assert rows[2].split("│")[1].index("█") == 2 * ENGLISH.index("verb")


def test_column_names_are_written_downwards_over_their_columns():
    lines = text_map(cross(), 0).splitlines()[: -len(GERMAN)]
    at = max(map(len, GERMAN)) + 2 + 2 * ENGLISH.index("occupies")
    assert "".join(line[at] for line in lines if len(line) > at).strip() == "occupies"


def test_no_line_is_wider_than_the_terminal():
    assert max(map(len, text_map(cross(), width=80).splitlines())) <= 80
    wide = Trace("wide", torch.eye(100)[None, None])
    lines = text_map(wide, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[42].endswith("42 → 42 100%")


def test_wide_letters_keep_the_frame_straight():
    words = ("日本", "a", "😀", "\n")
    rows = text_map(torch_trace(words)).splitlines()[-4:]
    wide = [sum(2 if east_asian_width(c) in "WF" else 1 for c in row.split("│")[0]) for row in rows]
    assert len(set(wide)) == 1


def test_nothing_that_moves_the_cursor_is_printed():
    text = text_map(torch_trace(("\x1b[31m", "\r", "\u202e", "")))
    assert not set(text) & set("\x1b\r\u202e")


def test_row_of_zeros_says_so():
    assert "nothing" in text_map(torch.zeros(2, 100), width=40)


def test_visible_keeps_letters_and_spells_out_the_rest():
    assert visible("Sätze") == "Sätze"
    assert visible("日本 العربية") == "日本 العربية"
    assert visible("👩‍👧") == "👩‍👧"
    assert visible("") == "∅"
    assert visible("  ") == "␣␣"
    assert visible("a\n\x00\x7f\u2028\ud83d\U000e0001") == "a\\n\\x00\\x7f\\u2028\\ud83d\\U000e0001"


def test_truncate_middle_keeps_both_ends():
    assert truncate_middle("abc") == "abc"
    assert len(truncate_middle("x" * 100)) == 24
    assert truncate_middle("Donaudampfschifffahrtsgesellschaft").endswith("schaft")


def torch_trace(words: tuple[str, ...]) -> Trace:
    n = len(words)
    return Trace("odd", torch.eye(n)[None, None], rows=words, columns=words)


def test_heatmap_cells_cover_whole_patches():
    """8 x 8 patches of 4 pixels: 32 rows do not go into 14, but into 8, and every patch is one cell."""
    corner = np.zeros((8, 8))
    corner[0, 7] = 1.0
    lines = text_heatmap(np.kron(corner, np.ones((4, 4)))).splitlines()
    assert len(lines) == 8
    assert [line.count("█") for line in lines] == [2] + [0] * 7
    assert len(text_heatmap(np.zeros((224, 224))).splitlines()) == 14
    assert len(text_heatmap(np.zeros((31, 31))).splitlines()) == 14  # a prime: as near as it goes
    assert {len(line) for line in text_heatmap(np.zeros((224, 320))).splitlines()} == {22}
