"""``regard run MODEL --help``: the options of a model in lines that fit the terminal."""

import regard
from regard.cli.run import describe_options


def test_options_of_a_model_fit_80_columns_and_name_their_values():
    text = describe_options("en-de", regard.load("en-de"), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "    --beam-size N " in text
    assert "    --must TEXT... " in text
    assert "    --early-stopping true|never" in text
    assert not any(word in text for word in ("tuple[", "Union[", "typing.", "default: False"))
