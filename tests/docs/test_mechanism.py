"""The mechanism of docs/how/mechanism.md passes the contract tests of every mechanism."""

import sys

import pytest

from regard.attention import MECHANISMS
from tests.contracts import test_mechanisms as contracts
from tests.contracts import test_stepping as stepping

from .blocks import ROOT, blocks

PAGE = ROOT / "docs" / "how" / "mechanism.md"


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """The page's file, importable, and its line in the table."""
    (block,) = [block for block in blocks(PAGE, "python") if block.mark == "file: quiet.py"]
    (tmp_path / "quiet.py").write_text(block.code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(MECHANISMS, "quiet", ("quiet", "QuietAttention"))
    yield block.code
    sys.modules.pop("quiet", None)


def test_file_length_matches_the_page(quiet):
    body = quiet.split('"""', 2)[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25


OF_OTHERS = {  # contracts that its traits do not call for
    "test_mechanisms_without_causality_take_no_causal_mask",
    "test_self_attention_refuses_other_numbers_of_keys",
    "test_the_limiting_case_is_softmax_attention",
    "test_the_error_falls_as_the_budget_grows",
}


def every_contract():
    return {name: getattr(contracts, name) for name in dir(contracts) if name.startswith("test_")}


def test_it_passes_the_contracts(quiet, double, unchecked):
    for name, contract in every_contract().items():
        if name not in OF_OTHERS:
            contract(*["quiet", False][: contract.__code__.co_argcount])


def test_steps_equal_one_forward(quiet, double):
    stepping.test_steps_equal_one_forward("quiet")
    stepping.test_steps_after_prompts_of_different_lengths_equal_one_forward("quiet")
    stepping.test_beams_follow_their_ancestors_when_they_are_selected("quiet", False)


def test_rest_of_the_page_runs(quiet):
    names = {}
    for block in blocks(PAGE, "python"):
        if block.mark == "after: quiet.py":
            exec(compile("\n" * (block.line - 1) + block.code, str(block), "exec"), names)


def test_model_with_the_mechanism_decodes_and_is_saved_by_name(quiet, tmp_path):
    import torch

    import regard
    from regard.decoding.beam_search import beam_search

    model = regard.build("transformer", size="tiny", vocab=30, attention="quiet").eval()
    source = torch.tensor([[5, 6, 7, 2]])
    regard.save(model, tmp_path / "saved")
    again = regard.load(tmp_path / "saved")
    assert beam_search(model, source, beam_size=3, max_length=5) == beam_search(
        again, source, beam_size=3, max_length=5
    )


def test_table_lists_every_contract_test():
    page = PAGE.read_text(encoding="utf-8")
    rows = page[page.index("| contract |") :].split("\n\n")[0].splitlines()[2:]
    # rows that sum to one are checked together with the first; steps by contracts of their own
    assert len(rows) == len(every_contract()) + 2
