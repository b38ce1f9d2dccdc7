"""What was read is kept by where datasets were then, not only by name."""

import pytest

from regard.core.errors import BadInput
from regard.data import home


def test_what_was_read_is_kept_and_another_home_is_another_dataset(tmp_path, monkeypatch):
    for place in ("one", "two"):
        (tmp_path / place / "words").mkdir(parents=True)
        (tmp_path / place / "words" / "all.txt").write_text(place)
    times = []

    @home.remembered(4)
    def read(name):
        """The file of a dataset."""
        times.append(name)
        return (home.folder(name) / "all.txt").read_text()

    for place, many in (("one", 1), ("one", 1), ("two", 2), ("one", 2)):
        monkeypatch.setenv("REGARD_DATA", str(tmp_path / place))
        assert read("words") == place
        assert len(times) == many
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="REGARD_DATA"):
        read("words")
    assert read.__doc__ == "The file of a dataset."
