import logging
from dataclasses import replace

import pytest
import torch

from regard.core.errors import BadInput, RegardError
from regard.data.text.parallel_corpus import PairBatch, ParallelCorpus
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.models.transformer import Config, Transformer
from regard.tasks.text import translation
from regard.tasks.text.translation import Translation, Translator, shift_targets
from regard.tokens.tokenizer import Tokenizer

WORDS = {"one": "eins", "two": "zwei", "red": "rot", "blue": "blau", "dog": "Hund", "cat": "Katze"}
LINES = [" ".join(w) for w in (("one", "red", "dog"), ("two", "cat"), ("blue",), ("one", "blue", "cat", "two", "dog"))]


def german(line):
    return " ".join(WORDS[w] for w in line.split())


@pytest.fixture(scope="module")
def text():
    return Tokenizer.train([*LINES, *map(german, LINES)] * 3, kind="bytes", size=300)


@pytest.fixture(scope="module")
def model(text):
    """An untrained model whose end token is likely enough for outputs of all lengths."""
    torch.manual_seed(1)
    config = Config(text.size, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1, head_bias=True, length=64)
    model = Transformer(config).eval()
    with torch.no_grad():
        model.embed.weight.mul_(4)
        model.head.bias[config.eos] = 9.0
    return model


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.en").write_text("\n".join(LINES * 4) + "\n")
        (tmp_path / f"{split}.de").write_text("\n".join(map(german, LINES * 4)) + "\n")
    return tmp_path


def random_batch(lengths=(5, 3, 2), vocab=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(3, vocab, (len(lengths), max(lengths)), generator=generator)
    source = torch.randint(3, vocab, (len(lengths), 4), generator=generator)
    return PairBatch(source, torch.tensor([4, 2, 3][: len(lengths)]), target, torch.tensor(lengths))


# -- the loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_smoothed_loss_equals_the_formula_written_out_and_padding_adds_nothing(smoothing):
    batch = random_batch()
    vocab = 11
    logits = torch.randn(3, 4, vocab, dtype=torch.float64)
    total = 0.0
    for row in range(3):
        for t in range(int(batch.target_lengths[row]) - 1):
            log_p = logits[row, t] - torch.logsumexp(logits[row, t], 0)
            right = int(batch.target[row, t + 1])
            total += -(1 - smoothing) * float(log_p[right]) - smoothing / vocab * float(log_p.sum())
    assert float(label_smoothed_cross_entropy(logits, shift_targets(batch), smoothing)) == pytest.approx(
        total, rel=1e-6
    )


def test_padding_gets_no_gradient_whatever_stands_in_it():
    batch = random_batch()
    logits = torch.randn(3, 4, 11, requires_grad=True)
    label_smoothed_cross_entropy(logits, shift_targets(batch), 0.1).backward()
    real = torch.arange(4) < batch.target_lengths[:, None] - 1
    assert (logits.grad[~real] == 0).all()
    assert (logits.grad[real].abs().sum(-1) > 0).all()
    other = replace(batch, target=torch.where(torch.arange(5) < batch.target_lengths[:, None], batch.target, 9))
    assert torch.equal(shift_targets(batch), shift_targets(other))


def test_a_real_token_with_the_number_of_padding_counts():
    batch = random_batch()
    target = batch.target.clone()
    target[0, 2] = 0
    assert int((shift_targets(replace(batch, target=target)) != -100).sum()) == 4 + 2 + 1


def test_the_sum_over_parts_of_a_batch_is_the_loss_of_the_batch(folder):
    task = Translation(translation.Config(), ParallelCorpus(str(folder), vocab_size=300))
    model = Transformer(task.fit(Config(1, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1))).eval()
    whole = task.train.collate(torch.arange(8))
    total, parts = task.loss(model, whole)
    pieces = [task.train.collate(rows) for rows in torch.arange(8).split(3)]
    assert sum(task.count(piece) for piece in pieces) == task.count(whole)
    torch.testing.assert_close(sum(task.loss(model, piece)[0] for piece in pieces), total)
    assert not parts["loss"].requires_grad


def test_evaluation_does_not_depend_on_how_rows_are_batched(folder):
    task = Translation(translation.Config(beam_size=2), ParallelCorpus(str(folder), vocab_size=300))
    model = Transformer(task.fit(Config(1, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1)))
    found = task.evaluate(model, "val", effort=2)
    corpus = task.dataset("val")
    one_by_one = 0.0
    for i in range(len(corpus)):
        source, target = torch.tensor([corpus.source.row(i)]), torch.tensor([corpus.target.row(i)])
        with torch.no_grad():
            one_by_one += float(label_smoothed_cross_entropy(model(source, target[:, :-1]), target[:, 1:], 0.0))
    assert found["loss"] == pytest.approx(one_by_one / found["tokens"], rel=1e-4)
    assert "tok:13a" in found["bleu_signature"]
    report = task.report(model, "test")
    assert {"bleu", "bleu_lower", "chrf", "bleu_signature", "loss", "split", "sentences", "beam_size"} <= report.keys()
    assert report["sentences"] == 16


def test_a_report_says_whether_a_model_writes_lower_case_only(folder, monkeypatch):
    """So that cased scores, which it cannot reach, are not printed."""
    task = Translation(translation.Config(beam_size=1), ParallelCorpus(str(folder), vocab_size=300))
    model = Transformer(task.fit(Config(1, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1)))
    for change, expected in ((str.lower, True), (str, False)):
        said = [change(german(line)) for line in LINES * 4]
        monkeypatch.setattr(Translator, "__call__", lambda self, lines, said=said, **search: said)
        assert task.report(model, "test")["lower_case"] is expected
    (folder / "test.de").write_text((folder / "test.de").read_text().lower())  # nor do its references
    assert Translation(task.config, task.data).report(model, "test")["lower_case"] is False


def test_bleu_by_length_is_that_of_the_sources_in_each_bucket(folder, monkeypatch):
    task = Translation(translation.Config(beam_size=1), ParallelCorpus(str(folder), vocab_size=300))
    (folder / "long.en").write_text("\n".join([LINES[0], " ".join(["one"] * 6), " ".join(["one"] * 40)]) + "\n")
    (folder / "long.de").write_text("\n".join(["eins rot Hund da", "eins " * 6, "eins " * 40]) + "\n")
    said = ["eins rot Hund da", "zwei " * 6, "eins " * 40]
    monkeypatch.setattr(Translator, "__call__", lambda self, lines, **search: said)
    model = Transformer(task.fit(Config(1, width=16, heads=2, ffn=16, encoder_layers=1, decoder_layers=1)))
    rows = task.report(model, "long")["by_length"]
    assert [(row["from"], row["to"], row["count"]) for row in rows] == [(1, 5, 1), (6, 10, 1), (31, None, 1)]
    assert [round(row["bleu"]) for row in rows] == [100, 0, 100]


# -- the translator ----------------------------------------------------------------------------------------------------


@pytest.fixture
def translator(model, text):
    return Translator(model, text)


def test_a_batch_gives_what_single_lines_give_in_their_order(translator):
    lines = [LINES[i % 4] * (1 + i % 2) for i in range(7)]
    for beams in (1, 3):
        singly = [translator([line], beam_size=beams)[0] for line in lines]
        assert len(set(singly)) > 2  # else the test says nothing
        assert translator(lines, beam_size=beams) == singly
        assert [c[0].text for c in translator.candidates(lines, beam_size=beams, batch_tokens=1)] == singly
        assert list(translator.stream(lines, window=4, beam_size=beams)) == singly


@pytest.mark.parametrize("blank", ["", " ", "\t", "\n", "\u00a0 \u2003", "\x00", "\ufeff"])
def test_a_blank_line_gives_an_empty_line_and_leaves_the_others_alone(translator, blank):
    alone = translator([LINES[0]])[0]
    assert translator([blank, LINES[0], blank]) == ["", alone, ""]
    assert translator([blank]) == [""]


def test_no_lines_give_no_lines(translator):
    assert translator([]) == []
    assert list(translator.stream([])) == []


@pytest.mark.parametrize(
    "line",
    [
        "👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈",
        "a\x00b\x1b[31mc\x7f",
        "\ud800 half",
        "one\ntwo\r\nred",
        "\u202e reversed",
        "�",
        "<s> </s> <pad>",
    ],
)
def test_strange_characters_never_crash_and_give_one_line(translator, line):
    (written,) = translator([line])
    assert isinstance(written, str)
    assert len(written.splitlines()) <= 1


def test_something_that_is_not_text_is_an_error_that_names_the_line(translator):
    with pytest.raises(BadInput, match="text 2: Expected a text"):
        translator(["one", 7])


def test_a_line_that_is_too_long_is_cut_at_its_sentences_and_said_so(translator, caplog):
    sentences = [f"{LINES[i % 4]}." for i in range(30)]
    with caplog.at_level(logging.WARNING, "regard"):
        (written,) = translator([" ".join(sentences)], beam_size=2)
    assert written == " ".join(w for w in translator(sentences, beam_size=2) if w)
    assert "line 1" in caplog.text
    assert "split into 30 parts" in caplog.text


def test_line_numbers_go_on_from_window_to_window(translator, caplog):
    lines = [LINES[0]] * 5 + ["one two red " * 60]
    with caplog.at_level(logging.WARNING, "regard"):
        assert len(list(translator.stream(lines, window=2, beam_size=1))) == 6
    assert "line 6" in caplog.text


@pytest.mark.parametrize("line", ["x" * 50_000, "one " * 12_500, "🦊" * 5000, "a." * 3000])
def test_enormous_lines_are_cut_to_what_the_model_can_read(translator, line):
    (parts,) = translator._parts([line], [1])
    assert all(0 < len(part) <= translator.max_length for part in parts)
    assert translator.max_length < 64  # one place is the end token's
    if " " in line:  # cut between words
        again = [w for part in parts for w in translator.text.decode([part])[0].split()]
        assert again == line.split()


def test_nbest_gives_ranked_different_translations(translator):
    found = translator.candidates([LINES[0], "", LINES[1]], beam_size=4, num_candidates=3)
    assert [len(line) for line in found] == [3, 1, 3]
    for line in (found[0], found[2]):
        assert [c.score for c in line] == sorted((c.score for c in line), reverse=True)
    best = translator(LINES[0], beam_size=4, num_candidates=3)
    assert best == found[0][0].text
    assert best.score == pytest.approx(found[0][0].score, abs=1e-5)
    assert [c.text for c in best.candidates] == [c.text for c in found[0]]
    with pytest.raises(BadInput, match=r"num_candidates must be at most beam_size \(2\), got 3"):
        translator(LINES, beam_size=2, num_candidates=3)


def test_streaming_reads_no_further_than_its_window(translator):
    read = 0

    def lines():
        nonlocal read
        for i in range(10_000):
            read += 1
            yield LINES[i % 4]

    stream = translator.stream(lines(), window=8, beam_size=1)
    for _ in range(9):
        next(stream)
    assert read == 16


def test_attention_rows_are_what_is_written_and_columns_what_is_seen(translator, text):
    traces = {trace.name: trace for trace in translator.attention(LINES[0], german(LINES[0]))}
    read = (*text.pieces(text.encode_one(LINES[0])), "</s>")
    written = tuple(text.pieces(text.encode_one(german(LINES[0]))))
    cross = traces["decoder.blocks.0.cross"]
    assert cross.columns == read
    assert cross.rows == (*written, "</s>")
    assert traces["encoder.blocks.0.mix"].rows == read
    own = traces["decoder.blocks.0.mix"]
    assert own.columns == ("<s>", *written)
    assert own.rows == (*written, "</s>")
    assert own.weights.shape == (1, 2, len(written) + 1, len(written) + 1)
    assert (own.weights.triu(1) == 0).all()
    torch.testing.assert_close(cross.weights.sum(-1), torch.ones(1, 2, len(written) + 1))


def test_attention_of_the_best_translation_is_read_back_without_being_told_it(translator, text):
    best = translator([LINES[3]], beam_size=4)[0]
    own = translator.attention(LINES[3])[-1]
    assert text.decode([text.encode_one(best)])[0] == best
    assert len(own.rows) == len(text.encode_one(best)) + 1 or own.rows[-1] == "</s>"
    with pytest.raises(BadInput, match="empty"):
        translator.attention("  ")


def test_a_recurrent_translator_shows_its_alignment(text):
    from regard.models import build

    model = build("rnnsearch", size="tiny", vocab=text.size, width=8, hidden=8)
    (trace,) = Translator(model, text).attention(LINES[0], german(LINES[0]))
    assert trace.kind == "align"
    assert trace.columns == (*text.pieces(text.encode_one(LINES[0])), "</s>")
    assert trace.weights.shape == (1, 1, len(trace.rows), len(trace.columns))
    assert len(Translator(model, text)(LINES, beam_size=2)) == 4


def test_moses_style_lines_go_in_and_come_out_as_running_text(model, text):
    from regard.data.text import moses

    if not moses.is_available():
        pytest.skip("sacremoses is optional")
    plain, styled = Translator(model, text), Translator(model, text, style="moses")
    written = plain(moses.tokenize(["One RED dog."], "en"))
    assert styled(["One RED dog."]) == moses.detokenize(written, "de")
    assert styled(["", " "]) == ["", ""]


# -- the ways of searching ---------------------------------------------------------------------------------------------

WAYS = {
    "greedy": {"beam_size": 1},
    "diverse": {"beam_size": 4, "groups": 2, "num_candidates": 2},
    "drawn": {"sample": True, "top_p": 0.9, "seed": 3},
    "prefix": {"prefix": "ein"},
    "must": {"must": ["hund"], "beam_size": 4},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_searching_gives_a_batch_what_single_lines_get(translator, way):
    lines = ["a dog runs", "two men in a boat", "a dog"]
    batch = translator.candidates(lines, **WAYS[way])
    for number, line in enumerate(lines, 1):
        (single,) = translator.candidates([line], first=number, **WAYS[way])
        assert [c.text for c in single] == [c.text for c in batch[number - 1]]


def test_prefix_and_phrases_are_in_the_translations(translator):
    assert all(line.startswith("ein") for line in translator(["a dog", "a boat"], prefix="ein"))
    assert all("hund" in line for line in translator(["two men", "a boat"], must=["hund"], beam_size=6))


def test_what_does_not_go_together_is_refused(translator):
    with pytest.raises(RegardError, match="plain beam search only"):
        translator(["a"], must=["b"], prefix="c")
    with pytest.raises(RegardError, match="did you mean 'temperature'"):
        translator(["a"], temprature=2)
    with pytest.raises(RegardError, match="too long"):
        translator(["dog " * 500], prefix="ein")
