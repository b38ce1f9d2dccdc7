"""Visual question answering: choose the answer to a question about a picture.

    inputs       Image, Text: picture and question
    output       Classes: the answers
    loss         cross-entropy of the answer, summed over the questions; plus that of the names of patches
    metrics      accuracy, of all questions and of each kind; loss (nats per question)

Where `patch_labels` is above 0, every patch of a training picture also names the thing and the colour at its middle, as
the data say: the encoder learns to see within a few hundred updates, which the answers alone teach it very slowly.
Nobody says where a question should look, and nothing is named at prediction.

`hide` trains and evaluates a model that cannot look ("picture": every pixel is the mean colour) or one that cannot read
("question": no words). What a full model is worth is how far it is ahead of both.

A question whose form or words were not in the training data gets the answer `NOT_LEARNED`, not a guess.

Antol et al.: VQA: Visual Question Answering. ICCV 2015. arXiv:1505.00468; Goyal et al.: Making the V in VQA Matter.
CVPR 2017. arXiv:1612.00837 (blind baselines)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor, pair
from regard.core.trace import Trace
from regard.core.validation import validate
from regard.metrics.base import ACCURACY, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.image import Image, Preprocess
from regard.modalities.text import Text
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor, check_label_count, config_value
from regard.tokens.question_forms import QuestionForms
from regard.tokens.story_words import PAD, StoryWords, split_words

if TYPE_CHECKING:  # a predictor starts without the modules of training
    from regard.data.images.scene_questions import QuestionBatch, SceneQuestions, SceneQuestionSplit

log = logging.getLogger("regard")

NOT_LEARNED = "not a question that I learned"
BATCH_PIXELS = 2**21  # pixels of a batch of `evaluate` and of the predictor


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    hide: Literal["nothing", "picture", "question"] = field(
        "nothing", help="picture: a model that cannot look; question: one that cannot read"
    )
    label_smoothing: float = field(0.0, low=0, below=1)
    patch_labels: float = field(
        1.0, low=0, help="weight of naming what each patch shows, in training only; 0: learn from questions alone"
    )

    def build(self, data: SceneQuestions, seed: int = 0, folder: Path | None = None) -> VisualQuestionAnswering:
        """Return the task on these data."""
        return VisualQuestionAnswering(self, data, seed)


class VisualQuestionAnswering(SplitTask["SceneQuestionSplit"]):
    """Train and evaluate a model that answers questions about pictures."""

    name = "visual_question_answering"
    unit = split_size = "questions"
    metrics = (ACCURACY, loss_metric("nats per question"))
    ragged = False  # all batches have one shape
    data: SceneQuestions

    def __init__(self, config: Config, data: SceneQuestions, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        self.config, self.words = config, data.words()
        self.preprocess = Preprocess(
            pair(data.image_size), 3, tuple(data.mean), tuple(data.std), resample="bilinear", crop_mode="squash"
        )

    def _load(self, split: str) -> SceneQuestionSplit:
        return self.data.load(split, self.words)

    def fit(self, config: Any) -> Any:
        picture = replace(config.picture, image_size=self.data.image_size)
        named = self.config.patch_labels > 0 and self.config.hide != "picture"
        labels = self.data.label_sizes if named else ()
        sizes = {"vocab": self.words.size, "num_classes": len(self.words.answers), "patch_labels": labels}
        return replace(config, picture=picture, **sizes)

    def count(self, batch: QuestionBatch) -> int:
        return batch.answers.numel()

    def logits(self, model: nn.Module, batch: QuestionBatch) -> tuple[Float[Tensor, "B K answers"], Any]:
        """Return the logits of all questions of a batch, without what is hidden, and the state of the pass."""
        images, questions = self.preprocess.normalize(batch.pixels), batch.questions
        if self.config.hide == "picture":
            images = torch.zeros_like(images)
        if self.config.hide == "question":
            questions = torch.full_like(questions, PAD)
        return call_with_state(model, images, questions)

    def loss(
        self, model: nn.Module, batch: QuestionBatch, step: Any = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = self.logits(model, batch)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(
            logits.flatten(0, 1).float(), batch.answers.flatten(), reduction="sum", label_smoothing=smoothing
        )
        parts = {"loss": total.detach()}
        for named in pass_state.collect("patch_labels"):
            grid = cast(Any, model).grid_size(tuple(batch.labels.shape[-2:]))
            names = self.count(batch) * patch_loss(named, batch.labels, grid)
            total, parts["patch_loss"] = total + self.config.patch_labels * names, names.detach()
        return self.with_layer_losses(total, batch, pass_state), parts

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return accuracy of all questions and of each kind (accuracy_<kind>), loss (nats per question), questions."""
        part, device, nll = self.dataset(split), next(model.parameters()).device, 0.0
        right, kinds = [], []
        model.eval()
        for batch in part.eval_batches(max(1, BATCH_PIXELS // self.data.image_size**2)):
            batch = batch.to(device)
            logits, _ = self.logits(model, batch)
            nll += float(F.cross_entropy(logits.flatten(0, 1).float(), batch.answers.flatten(), reduction="sum"))
            right.append((logits.argmax(-1) == batch.answers).flatten())
            kinds.append(batch.kinds.flatten())
        is_right, kind = torch.cat(right).double().cpu(), torch.cat(kinds).cpu()
        found: dict[str, Any] = {"accuracy": float(is_right.mean())}
        found |= {f"accuracy_{name}": float(is_right[kind == n].mean()) for n, name in enumerate(self.data.kinds)}
        return found | {"loss": nll / len(is_right), "questions": len(is_right)}

    def describe(self) -> dict[str, Any]:
        forms = self.data.forms()
        return {
            "name": self.name,
            "answers": list(self.words.answers),
            "words": list(self.words.others),
            "forms": forms.forms,
            "slots": forms.slots,
            "preprocess": to_dict(self.preprocess),
        }

    def card(self) -> str:
        side, many = self.data.image_size, len(self.dataset("train"))
        known = f"{self.words.size} words, {len(self.words.answers)} answers"
        return f"{self.data.title()}, {many:,} scenes of {side} x {side}, {len(self.data.kinds) * many:,} questions, {known}"  # noqa: E501


def patch_loss(
    logits: Sequence[Float[Tensor, "B N _"]], labels: UInt8[Tensor, "B L Y X"], grid: tuple[int, int]
) -> Float[Tensor, ""]:
    """Return the cross-entropy of naming the pixel in the middle of each cell of a grid, a mean over cells, summed over
    the labels."""
    (y, x), (rows, columns) = labels.shape[-2:], grid
    middle_y, middle_x = (
        ((torch.arange(n, device=labels.device) + 0.5) * (side / n)).long() for n, side in ((rows, y), (columns, x))
    )
    wanted = labels[:, :, middle_y[:, None], middle_x].long().flatten(2)  # B L N
    each = [F.cross_entropy(x.flatten(0, 1).float(), wanted[:, n].flatten()) for n, x in enumerate(logits)]
    return torch.stack(each).sum()


# -- the predictor -----------------------------------------------------------------------------------------------------


class VisualQuestionAnswerer(Predictor):
    """A picture and a question in, the answers with their probabilities out.

        ask = regard.load("runs/vqa")
        ask("scene.png", "How many red digits are there?").label        "3"

    A question of a form, or with words, that the model was not taught gets the answer `NOT_LEARNED`.
    """

    inputs = {"image": Image, "question": Text}  # noqa: RUF012
    outputs = Classes

    def __init__(
        self,
        model: nn.Module,
        answers: Sequence[str],
        words: Sequence[str],
        forms: Sequence[str],
        slots: Mapping[str, Sequence[str]],
        preprocess: Preprocess | Mapping[str, Any],
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(Preprocess, preprocess)
        self.model, self.answers, self.words, self.preprocess = model.eval(), list(answers), list(words), preprocess
        self.vocabulary, self.known = StoryWords(tuple(answers), tuple(words)), QuestionForms(forms, slots)
        self.forms, self.slots = self.known.forms, self.known.slots
        check_label_count(answers, config_value(model, "num_classes"))
        self.vocabulary.check_size(config_value(model, "vocab"))

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found = [Classes(NOT_LEARNED, 1.0, {NOT_LEARNED: 1.0}) for _ in batch]
        asked = [n for n, item in enumerate(batch) if self._is_known(item["question"])]
        height, width = self.preprocess.size
        size, weight = max(1, BATCH_PIXELS // (height * width)), next(self.model.parameters())
        for begin in range(0, len(asked), size):
            check_cancelled()
            rows = asked[begin : begin + size]
            images = self.preprocess.batch([batch[n]["image"] for n in rows], weight)
            questions = self.vocabulary.encode(batch[n]["question"] for n in rows)
            with torch.no_grad():
                logits = self.model(images, questions.to(weight.device))
            for n, row in zip(rows, logits.double().softmax(-1).tolist(), strict=True):
                found[n] = Classes.rank(self.answers, row)
        return found

    def attention(self, image: Any, question: str) -> list[Trace]:
        """Return the attention maps of all layers."""
        with watch(self.model) as seen:
            self(image, question)
        return seen.traces()

    def _is_known(self, question: str) -> bool:
        """Return whether a question was learned; where it was not, log why."""
        if not split_words(question):
            raise BadInput(f"the question has no words, got {question!r:.60}")
        if reason := self.known.explain_refusal(question):
            log.warning(f"{question!r:.80}: {reason}; this model learned: {self.known.describe()}")
        return not reason
