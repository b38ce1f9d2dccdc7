"""Maps between tokens: one layer and head, all heads, all layers, several layers as one, or the path of an aligner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard import see
from regard.core.errors import BadInput
from regard.core.terminal_text import wrap
from regard.core.trace import Trace
from regard.interpret.figures.base import USUAL, FigureOptions, InspectionFigure
from regard.see.map_views import SINK_MIN_WEIGHT
from regard.see.maps import to_maps

_MARKS = {
    "<s>": "the beginning",
    "</s>": "the end",
    "[CLS]": "the beginning",
    "[SEP]": "the end",
}  # tokens that are no words
_OPTIONS = ("layer", "head", "special_tokens", "words")


class TokenMapsFigure(InspectionFigure):
    """The attention of a model that reads text."""

    views = dict.fromkeys(("cross", "heads", "encoder", "decoder", "layers", "rollout", "path"), _OPTIONS)

    def __init__(self, inspection: Any, options: FigureOptions = USUAL, source: str = "") -> None:
        super().__init__(inspection, options, source)
        every = inspection.traces()
        has_cross = any(trace.kind in ("cross", "align") for trace in every)
        self.view = options.view or ("cross" if has_cross else "heads")
        self.every, self.selected = every, select_traces(every, self.view, options.layer)
        self.marks = _describe_marks(self.selected[0], not options.special_tokens)
        if not options.special_tokens:  # after rollout, which goes through them
            self.every, self.selected = ([_without_marks(t) for t in some] for some in (every, self.selected))
        if options.words:  # also after rollout, which multiplies layers subword by subword
            text = inspection.predictor.text
            self.every, self.selected = (
                [see.merge_subwords(t, text) for t in some] for some in (self.every, self.selected)
            )

    def text(self, width: int = 100) -> str:
        lines = "\n".join(self.inspection.summary())
        if self.view == "layers":
            return lines
        return f"{lines}\n\n{see.text_map(self.selected[0], self.options.head, width)}\n\n{self._caption(width)}"

    def _caption(self, width: int) -> str:
        """Say which map is drawn, and what its rows and columns are, in lines of at most `width` characters."""
        maps, head = to_maps(self.selected[0]), self.options.head
        many = f", mean of {len(maps.heads)} heads" if len(maps.heads) > 1 else ""
        known = [mark for mark in _MARKS if mark in (*maps.rows, *maps.columns)]
        ends = [" ".join(f"{mark} is {_MARKS[mark]}." for mark in known), self.marks]
        title = f"{maps.title}{many if head is None else f', head {head}'}."
        return "\n".join(line for text in (title, maps.explanation, *filter(None, ends)) for line in wrap(text, width))

    def save(self, file: Path) -> None:
        first, head = self.selected[0], self.options.head
        if self.view == "layers":
            see.save(see.layers(self.selected), file)
        elif self.view == "path":
            see.save(see.alignment_path(first), file)
        elif head is None and self.view in ("heads", "encoder", "decoder"):
            see.save(see.heads(first), file)
        else:
            see.save(see.alignment(first, head), file)

    @property
    def page_traces(self) -> list[Trace] | None:
        return None if self.options.special_tokens and not self.options.words else self.every


def select_traces(traces: Sequence[Trace], view: str, layer: int | None = None) -> list[Trace]:
    """Return the traces that a view shows."""
    cross = [t for t in traces if t.kind in ("cross", "align")]
    # the hard choice of an aligner before the distribution it was sampled from, which belongs to a part of it
    names = [f"{t.name}." for t in cross if t.name]
    cross.sort(key=lambda t: any(t.name.startswith(name) for name in names))
    encoder = [t for t in traces if t.kind == "self" and not t.name.startswith("decoder")]
    decoder = [t for t in traces if t.kind == "self" and t.name.startswith("decoder")]
    own = encoder or decoder
    if view == "layers":
        return _require(cross or own, view)
    if view == "rollout" and not cross:
        return [see.rollout(_require(own, view)[: None if layer is None else layer + 1])]
    if view == "rollout":
        return [see.cross_rollout(_layer(cross, view, layer), see.rollout(_require(encoder, view)))]
    of_view = {"encoder": encoder, "decoder": decoder, "heads": cross or own}
    return [_layer(of_view.get(view, cross), view, layer)]


def _require(traces: Sequence[Trace], view: str) -> list[Trace]:
    if not traces:
        raise BadInput(f"This model has nothing to show for --view {view}.")
    return list(traces)


def _layer(traces: Sequence[Trace], view: str, layer: int | None) -> Trace:
    """Return one layer; by default the last but one, which aligns words best in the translators that ship."""
    found = _require(traces, view)
    if layer is None:
        return found[max(0, len(found) - 2)]
    if layer >= len(found):
        raise BadInput(f"There is no layer {layer} in the {view} view; there are 0 to {len(found) - 1}.")
    return found[layer]


def _describe_marks(trace: Trace, left_out: bool) -> str:
    """Return the line about the weight on the beginning and the end, if it is much or left out; "" else."""
    rows, columns = _words(trace.rows), _words(trace.columns)
    weights = trace.weights[..., rows, :].float()
    share = 1 - float(weights[..., columns].sum() / weights.sum().clamp_min(1e-6))
    names = " and ".join(mark for mark in _MARKS if mark in (trace.columns or ()))
    if not names or (share < SINK_MIN_WEIGHT and not left_out):
        return ""
    what = "left out, and rows scaled up to what is left" if left_out else "--no-special-tokens shows the rest"
    return f"{100 * share:.0f} % of the weight is on {names}: {what}."


def _without_marks(trace: Trace) -> Trace:
    """Return a map without the beginning and the end, its rows scaled up to the sum that they had."""
    rows, columns = _words(trace.rows), _words(trace.columns)
    whole = trace.weights[..., rows, :]
    inner = whole[..., columns]
    scale = whole.sum(-1, keepdim=True) / inner.sum(-1, keepdim=True).clamp_min(1e-6)
    centres = None if trace.centres is None else trace.centres[..., rows, :] - columns.start
    assert trace.rows is not None
    assert trace.columns is not None
    return replace(trace, weights=inner * scale, rows=trace.rows[rows], columns=trace.columns[columns], centres=centres)


def _words(tokens: Sequence[str] | None) -> slice:
    """Return which tokens are no marks of the beginning or the end."""
    assert tokens is not None
    return slice(int(tokens[0] in _MARKS), len(tokens) - (tokens[-1] in _MARKS))
