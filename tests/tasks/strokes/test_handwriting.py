"""Handwriting as a task: nats of real points alone, lines that do not depend on their company, stopping, priming."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.strokes.handwriting import HandwritingLines, StrokeBatch
from regard.modalities import Strokes
from regard.models.handwriting import Config, GaussianMixture, Handwriting, shift_right
from regard.tasks.strokes import handwriting
from regard.tasks.strokes.handwriting import HandwritingSynthesizer, point_noise
from regard.training import train
from regard.training.recipe import load_recipe
from tests.data.strokes.pen_files import pens

SMALL = Config(vocab=1, hidden=12, mixtures=3, aligner="gmm(mixtures=2, step=0.1)")
DATA = HandwritingLines(lines_per_epoch=32, batch_size=4, max_length=3)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(pens(tmp_path)))
    monkeypatch.setattr(
        "regard.training.loop.TrainingRun._draw", lambda self, force=False: None
    )  # longer than these runs


def task(data=DATA):
    return handwriting.Config().build(data, seed=1)


def network(of):
    torch.manual_seed(0)
    return Handwriting(of.fit(SMALL)).eval()


def longer(batch, by=3):
    """The same lines with more padding, in points and in text, and noise in it."""
    points = torch.cat([batch.points, 7 * torch.ones(len(batch.points), by, 3)], 1)
    text = torch.cat([batch.text, torch.zeros(len(batch.text), by, dtype=torch.long)], 1)
    return StrokeBatch(points, batch.lengths, text, batch.text_lengths)


def test_padding_adds_nothing():
    of = task()
    model, batch = network(of), next(of.batches().start(StreamPosition())).batch
    total, parts = of.loss(model, batch)
    torch.testing.assert_close(of.loss(model, longer(batch))[0], total)
    alone = [of.loss(model, StrokeBatch(*(x[i : i + 1] for x in batch)))[0] for i in range(4)]
    torch.testing.assert_close(sum(alone), total)
    torch.testing.assert_close(parts["offset_loss"] + parts["pen_loss"], total.detach())
    model.zero_grad()
    of.loss(model, batch)[0].backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    of.loss(model, longer(batch))[0].backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], grads)


def test_the_loss_is_minus_the_logarithm_of_density_and_coin():
    of = task()
    model, batch = network(of), next(of.batches().start(StreamPosition())).batch
    said = model(shift_right(batch.points), batch.text, batch.text_lengths)
    wanted = 0.0
    for i, n in enumerate(batch.lengths.tolist()):
        own = GaussianMixture(*(x[i, :n] for x in said))
        wanted -= float(
            (own.log_prob(batch.points[i, :n, :2]) + own.pen_log_prob(batch.points[i, :n, 2])).detach().sum()
        )
    assert float(of.loss(model, batch)[0].detach()) == pytest.approx(wanted, rel=1e-5)
    assert of.count(batch) == int(batch.lengths.sum())


def test_what_is_measured_adds_up_and_is_reported_line_by_line():
    of = task()
    model = network(of)
    found, report = of.evaluate(model), of.report(model, "val")
    assert found["loss"] == pytest.approx(found["offset_loss"] + found["pen_loss"])
    assert found["loss_per_line"] * found["lines"] == pytest.approx(found["loss"] * found["points"])
    assert sum(row["nats"] for row in report["per_line"]) == pytest.approx(found["loss"] * found["points"], rel=1e-5)
    assert all(row["text"].isdigit() for row in report["per_line"])
    with pytest.raises(BadInput, match="beam_size"):
        of.report(model, beam_size=3)


def test_the_same_line_whatever_is_written_with_it():
    of = task()
    scribe = HandwritingSynthesizer(network(of).double(), unit=0.12)
    together = scribe.samples(["314", "15", "9"], 2, bias=0.5, seed=3, max_points=40)
    assert [line.text for line in together] == ["314", "314", "15", "15", "9", "9"]
    for i, text in enumerate(["314", "15", "9"]):
        for mine, other in zip(
            scribe.samples([text], 2, bias=0.5, seed=3, max_points=40), together[2 * i :], strict=False
        ):
            torch.testing.assert_close(mine.points, other.points)
            torch.testing.assert_close(mine.window, other.window)
    assert not torch.equal(together[0].points, together[1].points)
    assert not torch.equal(scribe("314", seed=4, max_points=40).points, scribe("314", seed=3, max_points=40).points)


def test_chance_of_a_longer_line_begins_with_that_of_a_shorter_one():
    assert torch.equal(point_noise(5, 1, 200)[:7], point_noise(5, 1, 7))
    normal = point_noise(0, 0, 20_000)[:, 1:3]
    assert normal.mean(0).abs().max() < 0.03
    assert (normal.std(0) - 1).abs().max() < 0.03


class Ruler(torch.nn.Module):
    """Draws dashes to the right: the window moves on by a half a point, the pen is lifted at every second."""

    def __init__(self):
        super().__init__()
        self.anchor, self.began = torch.nn.Parameter(torch.zeros(())), []

    def start(self, points, text, lengths):
        self.began.append((points, text, lengths))
        return Counted(torch.zeros(len(points)), text.shape[1])

    def read(self, points, state):
        return None, Counted(state.at + 0.5 * points.shape[1], state.places)

    def step(self, point, state):
        state = Counted(state.at + 0.5, state.places)
        lift = torch.where(state.at % 1 == 0, 50.0, -50.0)
        many = len(point)
        means = torch.tensor([1.0, 0.0]).expand(many, 1, 2)
        return GaussianMixture(
            torch.zeros(many, 1), means, torch.full((many, 1, 2), 1e-6), torch.zeros(many, 1), lift
        ), state


class Counted:
    def __init__(self, at, places):
        self.at, self.places = at, places
        self.window_weights = torch.nn.functional.one_hot(((at - 0.5) // 1).long().clamp(0, places - 1), places)[
            :, None
        ].float()

    def select_rows(self, rows):
        return Counted(self.at[rows], self.places)


def test_writing_stops_when_the_window_is_on_the_end_and_the_pen_is_up():
    lines = HandwritingSynthesizer(Ruler(), unit=0.5)(["7", "123"], bias=0.0)
    assert [len(line.points) for line in lines] == [2, 6]
    assert all(line.finished for line in lines)
    torch.testing.assert_close(lines[1].points[:, 0], torch.full((6,), 0.5))
    assert lines[1].points[:, 2].tolist() == [0, 1, 0, 1, 0, 1]
    assert lines[1].character_index.tolist() == [0, 0, 1, 1, 2, 2]
    assert [[len(s) for s in strokes] for strokes in lines[1].characters()] == [[2], [2], [2]]
    cut = HandwritingSynthesizer(Ruler())("123", max_points=5)
    assert (len(cut.points), cut.finished) == (5, False)
    assert [len(s) for s in cut.strokes()] == [2, 2, 1]


def test_a_prime_is_read_first_and_is_not_part_of_the_line():
    ruler = Ruler()
    scribe = HandwritingSynthesizer(ruler, unit=0.5)
    hand = scribe("45", bias=0.0)
    line = scribe.samples(["123"], bias=0.0, prime=hand)[0]
    points, text, _ = ruler.began[-1]
    assert text.tolist() == [[4, 5, 1, 2, 3, 10]]
    torch.testing.assert_close(points[0, 1:, :2] * 0.5, hand.points[:, :2])
    assert (len(line.points), line.character_index.tolist(), line.window.shape) == (6, [0, 0, 1, 1, 2, 2], (6, 4))


def test_a_prime_that_no_scribe_wrote_is_refused():
    with pytest.raises(BadInput, match="prime must be Strokes"):
        HandwritingSynthesizer(Ruler()).samples(["1"], prime="x")


def test_a_primed_network_goes_on_as_if_it_had_written_the_prime():
    of = task()
    scribe = HandwritingSynthesizer(network(of).double(), unit=0.12)
    whole = scribe("12", bias=1.0, seed=5, max_points=30)
    cut = Strokes("1", whole.points[:10], whole.window[:10])
    prepared = scribe.model.start(whole.points[None].double(), torch.tensor([[1, 2, 10]]), torch.tensor([3]))
    units = whole.points.double() / torch.tensor([0.12, 0.12, 1.0])
    _, state = scribe.model.read(shift_right(units[None, :11]), prepared)
    primed = scribe.samples(["2"], bias=1.0, seed=5, max_points=5, prime=cut)[0]
    torch.testing.assert_close(primed.window[0].double(), state.window_weights[0, 0, 1:], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("texts", "settings", "match"),
    [
        ("12a", {}, "cannot write 'a'; it knows the characters 0123456789"),
        ("", {}, "empty"),
        ([], {}, "empty"),
        (["1", ""], {}, "empty"),
        ("1" * 251, {}, "at most 250 characters can be written in one line, got 251"),
        ("1", {"bias": -1.0}, "bias"),
        ("1", {"bias": float("nan")}, "bias"),
        ("1", {"num_samples": 0}, "num_samples must be at least 1"),
    ],
)
def test_what_cannot_be_written_is_one_line(texts, settings, match):
    with pytest.raises(BadInput, match=match):
        HandwritingSynthesizer(Ruler()).samples([texts] if isinstance(texts, str) else texts, **settings)
    if texts and "num_samples" not in settings:
        with pytest.raises(BadInput, match=match):
            HandwritingSynthesizer(Ruler())(texts, **settings)


def test_a_run_goes_on_exactly_and_what_it_saved_writes(tmp_path):
    recipe = load_recipe("handwriting_uji")
    settings = replace(
        recipe.train, steps=8, eval_interval=4, save_interval=4, log_interval=2, warmup_steps=2, schedule="constant"
    )
    recipe = replace(recipe, model=SMALL, data=DATA, train=settings)
    train(recipe, tmp_path / "whole")
    train(replace(recipe, train=replace(recipe.train, steps=4)), tmp_path / "parts")
    train(recipe, tmp_path / "parts", resume=True)
    scribes = [regard.load(tmp_path / name / "model") for name in ("whole", "parts")]
    for name, value in scribes[0].model.state_dict().items():
        assert torch.equal(value, scribes[1].model.state_dict()[name]), name
    assert isinstance(scribes[0], HandwritingSynthesizer)
    assert (scribes[0].letters, scribes[0].unit) == ("0123456789", DATA.unit)
    regard.save(scribes[0], tmp_path / "again")
    mine, other = (s("31", max_points=20) for s in (scribes[0], regard.load(tmp_path / "again")))
    assert torch.equal(mine.points, other.points)


def test_without_a_text_it_writes_so_many_points(tmp_path):
    of = task(HandwritingLines("omniglot", spacing=0, unit=0.2, max_length=2, lines_per_epoch=8, batch_size=4))
    model = network(of)
    assert of.describe()["letters"] == ""
    total, _ = of.loss(model, next(of.batches().start(StreamPosition())).batch)
    assert torch.isfinite(total)
    scribe = HandwritingSynthesizer(model, "", 0.2)
    lines = scribe.sample_unconditional(17, num_samples=2, seed=1)
    assert [len(line.points) for line in lines] == [17, 17]
    torch.testing.assert_close(scribe.sample_unconditional(17, num_samples=1, seed=1)[0].points, lines[0].points)
    with pytest.raises(BadInput, match="without a text"):
        scribe("12")
    torch.testing.assert_close(scribe("", max_points=17, seed=1).points, lines[0].points)
    with pytest.raises(BadInput, match="give it one"):
        HandwritingSynthesizer(Ruler()).sample_unconditional(3)
