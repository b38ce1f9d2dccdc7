"""Speech over time: the lattice of CTC, or the attention of a decoder over the frames; or that among the frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from regard import see
from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.interpret.figures.base import USUAL, FigureOptions, InspectionFigure, last_or


class AudioAlignmentFigure(InspectionFigure):
    """For every token of a transcript, the frames that it attends to: the mean of the heads of the last layer.

    The view "heads" shows the attention of an encoder among the frames, by default in its last layer.
    """

    views: ClassVar[Mapping[str, Sequence[str]]] = {"alignment": (), "heads": ("layer", "head")}

    def __init__(self, inspection: Any, options: FigureOptions = USUAL, source: str = "") -> None:
        super().__init__(inspection, options, source)
        self.encoder_trace: Trace | None = None
        if options.view == "heads":
            if not any(inspection.axes_of(held) == ("frames", "frames") for held in inspection.store.values()):
                raise BadInput("This model has no attention among the frames: leave out --view heads.")
            found = [t for t in inspection.traces() if t.kind == "self" and not t.name.startswith("decoder")]
            self.encoder_trace = found[last_or("layer", options.layer, len(found))]

    @property
    def title(self) -> str:
        return f"{self.source}: {self.inspection.output['text'] or 'no speech'}"

    def text(self, width: int = 100) -> str:
        return str(self.inspection.output["text"])

    def save(self, file: Path) -> None:
        if self.encoder_trace is not None:
            head, trace = self.options.head, self.encoder_trace
            see.save(see.heads(trace) if head is None else see.alignment(trace, head), file)
        else:
            self.save_lattice(file)

    def save_lattice(self, file: Path) -> None:
        """Draw the usual view."""
        inspection = self.inspection
        trace = [trace for trace in inspection.traces() if trace.kind in ("align", "cross")][-1]
        frames, weights = inspection.frames.numpy(), trace.weights[0].mean(0).numpy()
        see.audio_alignment(frames, weights, trace.rows, inspection.predictor.seconds, self.title, file)


class CTCLatticeFigure(AudioAlignmentFigure):
    """The states and labels of CTC at every frame; or the view "heads"."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"lattice": (), "heads": ("layer", "head")}

    def text(self, width: int = 100) -> str:
        words = [f"    {word['start']:6.2f} s   {word['word']}" for word in self.inspection.output["words"]]
        return "\n".join([super().text(), *words])

    def save_lattice(self, file: Path) -> None:
        found = self.inspection.analysis
        frames, probabilities = found.frames.numpy(), found.probabilities.numpy()
        lattice = found.share.numpy(), found.path.numpy(), found.states, found.labels
        see.ctc_lattice(frames, probabilities, *lattice, found.seconds, self.title, file)
