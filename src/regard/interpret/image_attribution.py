"""Attribution of an image model: watch one pass and return it as a `see.PixelAttribution`.

    classify = regard.load("runs/birds")
    attribution, found = attribute_image(classify, "wren.jpg")           the pass, and the label
    attribution.rollout()                                                Y X, on the pixels that the model was shown
    attribution, _ = attribute_image(classify, "wren.jpg", "robin")      with the gradient of that label's logit
    attribution.relevance()                                              relevance for robin: attention x gradient

What the head reads of the last tokens is known from the model: the class token (both of DeiT's), the weights of a
pooling that attends itself, or else the mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.attention.capture.watch import Traces, watch
from regard.core.errors import RegardError, UnknownName, did_you_mean
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.modalities.classes import Classes
from regard.see.pixel_attribution import PixelAttribution

if TYPE_CHECKING:
    from regard.tasks.image.image_classification import ImageClassifier


def attribute_image(
    classifier: ImageClassifier, image: Any, answer: str | bool = False
) -> tuple[PixelAttribution, Classes]:
    """Return the attribution and the classes of an image; `answer`: the label to differentiate, True: the predicted."""
    labels = classifier.labels
    if isinstance(answer, str) and answer not in labels:
        raise UnknownName(f"this model knows no label '{answer}'; {did_you_mean(answer, labels)}")
    values = classifier.preprocess(image, next(classifier.model.parameters()))
    which = labels.index(answer) if isinstance(answer, str) else None
    sight, logits = run_with_attribution(classifier.model, values, answer is not False, which)
    return sight, Classes.rank(labels, torch.softmax(logits.float(), -1).tolist())


def watch_image(classifier: ImageClassifier, image: Any) -> tuple[Traces, Classes]:
    """Return all that was recorded of the pass of an image, channel gates too, and its classes."""
    values = classifier.preprocess(image, next(classifier.model.parameters()))
    with torch.no_grad(), watch(classifier.model) as seen:
        logits = classifier.model(values)[0]
    return seen, Classes.rank(classifier.labels, torch.softmax(logits.float(), -1).tolist())


def run_with_attribution(
    model: nn.Module, image: Float[Tensor, "1 C Y X"], gradients: bool = False, answer: int | None = None
) -> tuple[PixelAttribution, Float[Tensor, " K"]]:
    """One image through any model over images: the pass, and its logits; the likeliest is differentiated, or `answer`.

    No gradient is left in the model's weights.
    """
    values = image.detach().requires_grad_(gradients)
    with torch.set_grad_enabled(gradients), watch(model, gradients=gradients) as seen:
        logits = model(values)[0]
        if gradients:
            torch.autograd.grad(logits[int(logits.argmax()) if answer is None else answer], values)
    return attribution_from_pass(model, seen.last_pass()), logits.detach()


def attribution_from_pass(model: nn.Module, last_pass: list[Trace]) -> PixelAttribution:
    """Return the attribution of a captured pass, with what the head reads."""
    prefix = int(getattr(model, "num_prefix_tokens", 0))
    steps = [step for step in last_pass if step.kind in ("self", "move")]
    if not any(step.kind == "self" for step in steps):
        raise RegardError(f"no token of this {type(model).__name__} attends to others, so there is no map of the image")
    last = [step for step in steps if step.kind == "self"][-1]
    pools = [step.weights[0, :, 0].mean(0) for step in last_pass if step.kind == "cross" and step.weights.shape[2] == 1]
    return PixelAttribution(steps, pools[-1] if pools else _head_weights(model, last.num_outputs, prefix), prefix)


def pooling_attributions(last_pass: list[Trace]) -> dict[str, PixelAttribution]:
    """Return the attribution of every pooling that attends, one query over the tokens of a layer, by its name."""
    found = {}
    for n, step in enumerate(last_pass):
        if step.kind == "cross" and step.weights.shape[2] == 1:
            below = [other for other in last_pass[:n] if other.kind in ("self", "move")]
            found[step.name] = PixelAttribution(
                [*below, replace(step, kind="self")], torch.ones(1, dtype=torch.float64)
            )
    if not found:
        raise RegardError("no layer of this model pools its tokens by attention, so there is no map of a pooling")
    return found


def _head_weights(model: nn.Module, tokens: int, prefix: int) -> Float[Tensor, " N"]:
    """The share that the head reads of each of the last tokens."""
    shares = torch.zeros(tokens, dtype=torch.float64)
    if getattr(model.config, "pool", "token" if prefix else "mean") == "token":
        first = 2 if hasattr(model, "distilled_head") else 1  # DeiT answers with the mean of two heads
        shares[:first] = 1 / first
    else:
        shares[prefix:] = 1 / (tokens - prefix)
    return shares
