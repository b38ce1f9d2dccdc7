"""``regard eval``: how good a trained model is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.api import IMAGENET, PACKAGED_MODELS
from regard.core.errors import BadInput, RegardError

if TYPE_CHECKING:
    from regard.metrics.base import Metric

_BUCKET = ("from", "to", "count")
_CASED = ("bleu", "chrf")  # scores that count case
_EDITS = ("substitutions", "insertions", "deletions")


def evaluate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of a run, or of a saved model (then --data is needed).")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Dataset: multi30k, tinyshakespeare; or a folder or file of your own, which is measured whole if it "
            "has no splits.",
            show_default="the run's own",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="SPLIT", help="Split of the data; may be repeated.", show_default="every test split"
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="LANGUAGE", help="Language to translate from, where --data has several."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="LANGUAGE", help="Language to translate to, where --data has several.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Use only the first N examples of a split.")
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="For a language model: slide the context by N tokens, so that a token sees all but N of it.",
            show_default="whole rows",
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Weights of a run: final, best, last, ema, average, or the name of a checkpoint."
        ),
    ] = "final",
    beam_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=256, help="Beams of beam search.", show_default="the recipe's")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0,
            help="Beam search divides scores by length to this power; more is longer. Choose it on validation.",
            show_default="the recipe's",
        ),
    ] = None,
    attention: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Also evaluate the same weights under this attention mechanism (regard list mechanisms), one without "
            "parameters of its own; may be repeated.",
        ),
    ] = None,
    maps: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Score these maps of an image model instead, against known masks, by deletion and insertion, and with "
            "shuffled weights: rollout, class, relevance, pooling, glimpses (classifiers), cross, rollout (detectors), "
            "class (segmenters), align (captioners), cross (questions). --data is scenes, one_object, camvid, "
            "fashion_mnist, mnist, scene_captions, or count_questions, same_, colour_, side_questions.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, ...; auto is the GPU where there is one.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write the results to this JSON file.")
    ] = None,
) -> int:
    """Evaluate a model: loss, perplexity, bits per byte, accuracy, BLEU and chrF with their signatures, error rates.

    \b
      regard eval runs/transformer_multi30k
      regard eval runs/tatoeba-de --split val --beam-size 1
      regard eval en-de --data tatoeba
      regard eval runs/photos --data more-photos
      regard eval shakespeare --data tinyshakespeare --split val --stride 64
      regard eval shakespeare --data tinyshakespeare --attention linear
      regard eval minilm --data sst2 --attention "performer(features=256)"
      regard eval runs/rooms --data middlebury --split test
      regard eval scenes --maps cross --data scenes --limit 100
    """
    from regard.cli import FAILED, print_status
    from regard.cli.output_files import check_writable
    from regard.metrics.base import Metric
    from regard.training import evaluate as measure
    from regard.training.evaluation import check_attention

    check_writable([output] if output is not None else ())  # before it is measured for an hour
    if str(folder) in PACKAGED_MODELS and str(folder) != IMAGENET:
        found = _compare_embeddings(str(folder), data, (split or ["test"])[0], attention or [], limit, device)
        _write(found, output)
        return FAILED if "refused" in found else 0
    if maps is not None:
        found = _evaluate_maps(str(folder), data or "scenes", maps, (split or ["test"])[0], limit, device)
        _write(found, output)
        return 0
    with _own_format(_folder(folder)) as place:
        own = _data(place, data, {"source": from_, "target": to, "limit": limit})
        given = (("beam_size", beam_size), ("length_penalty", length_penalty), ("stride", stride))
        how = {"weights": weights, "device": device, "data": own} | {
            k: value for k, value in given if value is not None
        }
        refused: dict[str, Any] = {}
        for spec in attention or ():  # said before the model's own weights are measured for an hour
            with _recording_refusal(refused, spec):
                check_attention(place, spec, own)
        found = measure(place, split, **how) | refused
        metrics = [Metric(**each) for each in found["metrics"]]
        for part, numbers in found["results"].items():
            print("\n".join(describe_report(part, numbers, metrics, found["split_size"])))
        for spec in [each for each in attention or () if each not in refused.get("refused", ())]:
            with _recording_refusal(found, spec):
                other = measure(place, split, attention=spec, **how)["results"]
                for part, numbers in other.items():
                    print("\n".join(describe_report(f"{part}, {spec}", numbers, metrics, found["split_size"])))
                found.setdefault("attention", {})[spec] = other
    found["model"] = str(folder)
    _write(found, output)
    print_status(f"{found['parameters']:,} parameters on {found['machine']}{_beams(found)}")
    return FAILED if "refused" in found else 0


def _evaluate_maps(name: str, data: str, method: str, split: str, limit: int | None, device: str) -> dict[str, Any]:
    """Print and return the scores of a model's maps on scenes with masks."""
    from dataclasses import asdict

    import regard
    from regard.interpret.faithfulness import evaluate_maps, masked_scenes
    from regard.training.device import select_device

    predictor = regard.load(name, select_device(device))
    if ("question" in predictor.inputs) != data.endswith("_questions"):
        wanted = "count_questions, same_questions, colour_questions or side_questions"
        raise BadInput(
            f"{name} cannot be scored on {data}: --data {wanted} are for models of questions, and only for them."
        )
    scenes, things = masked_scenes(data, split, limit or 100)
    scores = evaluate_maps(predictor, scenes, method, things)
    found = {"model": name, "data": data, "split": split, "method": method, "gain": scores.gain, **asdict(scores)}
    print(f"{name}, {method} on {data} ({split}): {scores.maps} maps")
    for label, value in (
        ("attention mass %", 100 * scores.mass),
        ("share of the masks %", 100 * scores.share),
        ("gain over uniform", scores.gain),
        ("pointing game %", 100 * scores.pointing),
        ("mass in the boxes %", 100 * scores.energy),
        ("deletion", scores.deletion),
        ("insertion", scores.insertion),
        ("attention mass, shuffled weights %", None if scores.random_mass is None else 100 * scores.random_mass),
        ("rank correlation, shuffled weights", scores.random_correlation),
    ):
        print(f"  {label:36} {'-' if value is None else f'{value:.3g}'}")
    return found


@contextmanager
def _recording_refusal(found: dict[str, Any], spec: str) -> Iterator[None]:
    """Say and record why a mechanism does not fit, and go on: the other ones may."""
    from regard.cli import print_status

    try:
        yield
    except RegardError as error:
        print_status(f"{spec}: {error}")
        found.setdefault("refused", {})[spec] = str(error)


def _write(found: Mapping[str, Any], output: Path | None) -> None:
    if output is not None:
        from regard.cli import print_status
        from regard.cli.output_files import describe_write
        from regard.core.files import atomic_write

        line = describe_write(output, "written")
        atomic_write((json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode(), output)
        print_status(line)


def _compare_embeddings(
    name: str, data: str | None, split: str, specs: Sequence[str], limit: int | None, device: str
) -> dict[str, Any]:
    """Print and return how close the vectors of an embedder are to its own under other mechanisms."""
    from copy import copy

    from regard.api import load
    from regard.data.text.labeled_text import LabeledText
    from regard.models.replace_attention import replace_attention
    from regard.training.device import select_device

    if not specs or data is None:
        raise BadInput(
            f"{name} gives vectors, which are compared with its own under another attention: add --attention SPEC and "
            "--data NAME, a data set of texts such as sst2"
        )
    embed = load(name, select_device(device))
    texts = [row[0] for row in LabeledText(data, limit=limit).read(split)]
    found: dict[str, Any] = {"model": name, "data": data, "split": split, "texts": len(texts), "attention": {}}
    for spec in specs:
        with _recording_refusal(found, spec):
            other = copy(embed)
            other.model = replace_attention(embed.model, spec)
            cosines = embed.similarity(other, texts)
            found["attention"][spec] = {
                "mean_cosine": round(float(cosines.mean()), 5),
                "min_cosine": round(float(cosines.min()), 5),
            }
            print(
                f"{split}, {spec}: {len(texts):,} texts, cosine to its own vectors: mean {cosines.mean():.4f}, "
                f"smallest {cosines.min():.4f}"
            )
    return found


def describe_report(part: str, numbers: Mapping[str, Any], metrics: Sequence[Metric], split_size: str) -> Iterator[str]:
    """Yield the lines of a report: its declared metrics with their units, and how they were computed."""
    from regard.metrics.base import find_metric
    from regard.metrics.by_length import bucket_label

    size = f"{numbers[split_size]:,} {split_size}" if split_size in numbers else ""
    # a model that writes lower case only cannot match the case of its references
    left_out = _CASED if numbers.get("lower_case") else ()
    known = [
        (metric, value)
        for key, value in numbers.items()
        if key not in left_out and isinstance(value, float) and (metric := find_metric(metrics, key)) is not None
    ]
    plain = [f"{m.name} {m.format(value)}" for m, value in known if f"{m.key}_signature" not in numbers]
    yield f"{part}: {', '.join(filter(None, [size, *plain]))}"
    if "words" in numbers and all(key in numbers for key in _EDITS):
        edits = ", ".join(f"{numbers[key]:,} {key}" for key in _EDITS)
        yield f"    {edits} of {numbers['words']:,} words"
    for metric, value in known:
        if signature := numbers.get(f"{metric.key}_signature"):
            yield f"    {metric.name:18} {metric.format(value):>8}   {signature}"
    if left_out:
        yield "    this model writes lower case only: cased BLEU and chrF are left out"
    for row in numbers.get("rollouts", ()):
        yield f"    target return {row['target_return']:6.1f}   return {row['return']:6.1f} ± {row['return_std']:.1f}"
    for row in numbers.get("by_length", ()):
        scores = [(find_metric(metrics, key), value) for key, value in row.items() if key not in (*_BUCKET, *left_out)]
        shown = "  ".join(f"{metric.name} {metric.format(value):>8}" for metric, value in scores if metric is not None)
        yield f"    length {bucket_label(row):>6} ({row['count']:,})   {shown}"


def _folder(named: Path) -> Path:
    """The folder of a run or of a saved model; the name of one that ships with the package will do."""
    from regard.api import zoo

    if not named.exists() and str(named) in zoo():
        return zoo()[str(named)]
    if not named.exists():
        known = f"; known by name: {', '.join(zoo())}" if named.name == str(named) else ""
        raise BadInput(f"there is no folder {named}{known}")
    if not named.is_dir():
        raise BadInput(f"{named} is a file, not a folder")
    return named


@contextmanager
def _own_format(folder: Path) -> Iterator[Path]:
    """Yield the folder of a model; of a checkpoint of texts from another library, one with the same in our format."""
    from tempfile import TemporaryDirectory

    import regard
    from regard.weights.checkpoint_formats import find_image_importer
    from regard.weights.folder import CONFIG, read_json

    file = folder / CONFIG
    is_own = (folder / "recipe.json").is_file() or not file.is_file() or "model_type" not in read_json(file)
    if is_own or find_image_importer(folder):
        yield folder
        return
    with TemporaryDirectory() as scratch:
        regard.save(regard.load(folder), Path(scratch) / "model")
        yield Path(scratch) / "model"


def _data(folder: Path, corpus: str | None, changes: dict[str, Any]) -> Any:
    """The data to measure on: the run's own, changed as asked for (None: not at all); those named for a saved model."""
    from dataclasses import replace

    from regard.data.images.image_dataset import ImageDataset
    from regard.data.images.scene_dataset import SceneDataset
    from regard.training.evaluation import dataset_for_model
    from regard.training.recipe import load_saved_recipe
    from regard.weights.folder import CONFIG

    changes = {key: value for key, value in changes.items() if value is not None}
    if (folder / "recipe.json").is_file():
        own = load_saved_recipe(folder).data
        named = isinstance(own, ImageDataset) or (isinstance(own, SceneDataset) and not hasattr(own, "path"))
        if corpus is not None and named and (folder / "model" / CONFIG).is_file():
            _warn_of_own_data(str(getattr(own, "path", "")), corpus)
            return dataset_for_model(folder / "model", corpus, **changes)  # which must have the model's labels
        if corpus is not None:
            key = "corpus" if hasattr(own, "corpus") else "path"
            _warn_of_own_data(getattr(own, key), corpus)
            changes[key] = corpus
        if wrong := [key for key in changes if not hasattr(own, key)]:
            raise BadInput(f"the data of this run ({type(own).__name__}) have no {wrong[0]} to be changed")
        return replace(own, **changes) if changes else None
    if corpus is None:
        raise BadInput(f"{folder} is a saved model without its run; say what to measure it on: --data NAME")
    return dataset_for_model(folder, corpus, **changes)


def _warn_of_own_data(own: str, given: str) -> None:
    """Say where a model is to be measured on what it was trained on."""
    from regard.cli import print_status

    if Path(own).exists() and Path(given).exists() and Path(own).samefile(given):
        print_status(f"the run was trained on {given}, so this is no test; --split val is the part that was kept apart")


def _beams(found: dict[str, Any]) -> str:
    """Return the beam size in words, if there was a search."""
    known = sorted({str(numbers["beam_size"]) for numbers in found["results"].values() if "beam_size" in numbers})
    return f", beam {', '.join(known)}" if known else ""
