from __future__ import annotations

import errno
import os
import stat

import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.core.files import atomic_write
from regard.see import alignment, save


def test_the_suffix_decides_the_format(tmp_path):
    figure = alignment(torch.eye(3))
    save(figure, tmp_path / "a.PNG")
    with Image.open(tmp_path / "a.PNG") as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    assert b"<svg" in save(figure, tmp_path / "a.svg").read_bytes()
    assert save("<p>", tmp_path / "a.html").read_text() == "<p>"


@pytest.mark.parametrize("name", ["a.gif", "a", "a.html", ".png"])
def test_unknown_suffix_raises_and_writes_nothing(tmp_path, name):
    with pytest.raises(BadInput, match=r"\.png or \.svg"):
        save(alignment(torch.eye(2)), tmp_path / name)
    with pytest.raises(BadInput, match=r"\.html"):
        save("<p>", tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_equal_figures_give_equal_files(tmp_path):
    one, two = (save(alignment(torch.eye(3)), tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert one == two


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    place = tmp_path / "a.html"
    place.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="no space left"):
        save("new", place)
    assert place.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


@pytest.mark.parametrize("name", ["no/such/folder/a.html", "folder.html", "x" * 300 + ".html", "a\0.html"])
def test_impossible_path_raises_a_one_line_error(tmp_path, name):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(BadInput, match="cannot write") as error:
        save("<p>", tmp_path / name)
    assert "\n" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.html"]


def test_a_link_is_written_through_and_files_have_ordinary_rights(tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    atomic_write(b"new", tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "real.html").stat().st_mode) == 0o666 & ~mask
