"""Figures of an inspection: what ``regard see`` prints and draws. An inspection names its figure in `figure`."""

from __future__ import annotations

from regard.core.spec import Registry, resolve
from regard.interpret.figures.base import USUAL, FigureOptions, InspectionFigure
from regard.interpret.inspection import Inspection

FIGURES: Registry = {
    "token_maps": ("regard.interpret.figures.token_maps", "TokenMapsFigure"),
    "pixel_attribution": ("regard.interpret.figures.pixel_attribution", "PixelAttributionFigure"),
    "glimpse_path": ("regard.interpret.figures.glimpse_path", "GlimpsePathFigure"),
    "object_attention": ("regard.interpret.figures.object_attention", "ObjectAttentionFigure"),
    "caption_attention": ("regard.interpret.figures.caption_attention", "CaptionAttentionFigure"),
    "question_attention": ("regard.interpret.figures.question_attention", "QuestionAttentionFigure"),
    "dense": ("regard.interpret.figures.dense", "DenseFigure"),
    "ctc_lattice": ("regard.interpret.figures.audio", "CTCLatticeFigure"),
    "audio_alignment": ("regard.interpret.figures.audio", "AudioAlignmentFigure"),
    "memory": ("regard.interpret.figures.memory", "MemoryFigure"),
    "story_hops": ("regard.interpret.figures.stories", "StoryHopsFigure"),
    "point_cloud": ("regard.interpret.figures.point_cloud", "PointCloudFigure"),
    "graph": ("regard.interpret.figures.graph", "GraphFigure"),
    "globe": ("regard.interpret.figures.globe", "GlobeFigure"),
    "output": ("regard.interpret.figures.output", "OutputFigure"),
}

__all__ = ["FIGURES", "FigureOptions", "InspectionFigure", "figure_class", "make_figure"]


def figure_class(inspection: type[Inspection]) -> type[InspectionFigure]:
    """Return the class that draws such inspections."""
    found: type[InspectionFigure] = resolve(FIGURES, inspection.figure, "figure")
    return found


def make_figure(inspection: Inspection, options: FigureOptions = USUAL, source: str = "") -> InspectionFigure:
    """Return the figure of an inspection; `source` names its input, a file for example, in the title."""
    return figure_class(type(inspection))(inspection, options, source)
