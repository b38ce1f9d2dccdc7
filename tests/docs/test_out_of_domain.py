"""The page about inputs out of a model's depth has the numbers of the cards."""

import re

from regard.api import zoo
from regard.modalities.domain import FILE

from .blocks import ROOT


def test_rates_are_those_of_the_cards():
    page = (ROOT / "docs" / "how" / "out-of-domain.md").read_text("utf-8")
    checked = {name: folder for name, folder in zoo().items() if (folder / FILE).is_file()}
    for name, folder in checked.items():
        card = (folder / "README.md").read_text("utf-8")
        ((alarms, noted),) = re.findall(r"false alarms: ([\d.]+) % of the test data; noted of (.*?): `", card)
        assert f"| {name} | {alarms} | {noted.replace(' %', '')} |" in page
    assert len(re.findall(r"^\| [\w-]+ \| [\d.]+ \| ", page, re.MULTILINE)) == len(checked)
