"""``regard cost``: what a model costs, before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def cost(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL[:SIZE]",
            help="A model and size (regard list models); a trained model by name (regard list zoo), run or folder, "
            "also of transformers or timm; or 'lecture' for the lectures' numbers.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Fields of its Config: layers=24 width=1024 vocab=50304"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Sequences per pass, over all devices.")] = 32,
    length: Annotated[
        int | None, typer.Option(help="Tokens per sequence.", show_default="the model's length, else 128")
    ] = None,
    source: Annotated[
        int | None,
        typer.Option(help="Tokens of the source (with --decode: of the prompt).", show_default="as --length"),
    ] = None,
    target: Annotated[int | None, typer.Option(help="Tokens of the target.", show_default="as --length")] = None,
    image: Annotated[
        str | None, typer.Option(help="Image size in pixels: 224 or 224x320.", show_default="the model's own, else 224")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Cost of a training step (the default).")] = False,
    infer: Annotated[bool, typer.Option("--infer", help="Cost of a forward pass.")] = False,
    decode: Annotated[bool, typer.Option("--decode", help="Cost of a decoding step with a full cache.")] = False,
    device: Annotated[
        str, typer.Option(help="h200, h100, a100, 4090, or here: this machine as regard doctor measured it.")
    ] = "h200",
    devices: Annotated[int, typer.Option(help="Number of devices.")] = 1,
    parallel: Annotated[str, typer.Option(help="Data parallelism: auto, ddp or fsdp.")] = "auto",
    tensor_parallel: Annotated[int, typer.Option(help="Devices over which every matrix is split.")] = 1,
    recompute: Annotated[bool, typer.Option("--recompute", help="Recompute activations in the backward pass.")] = False,
    precision: Annotated[
        str | None,
        typer.Option(help="dtype of matrix products: bfloat16 or float32.", show_default="bfloat16; float32 on a CPU"),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw, adam, muon, adafactor or sgd, as a spec.")] = "adamw",
    accumulate: Annotated[int, typer.Option(help="Gradient accumulation: passes per update.")] = 1,
    beam_size: Annotated[int, typer.Option(help="Beams per sequence, with --decode.")] = 1,
    tokens: Annotated[
        str | None, typer.Option(help="Tokens of a whole training run: 3e11, or 20x for 20 per parameter.")
    ] = None,
    efficiency: Annotated[
        float | None, typer.Option(help="Fraction of the peak that matrix products reach.", show_default="0.7")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Estimate what a model costs: parameters, multiply-adds, memory, communication and time, on one device or many.

    No weights are allocated, so that a model of a hundred billion parameters takes seconds.

    \b
      regard cost transformer:base --batch-size 64 --length 40
      regard cost gpt:gpt2 vocab=50304 --batch-size 32 --length 1024 --device h200
      regard cost gpt:xl --batch-size 64 --devices 8 --parallel fsdp --recompute
      regard cost gpt:gpt2 --decode --batch-size 16 --length 1024
      regard cost en-de --infer
      regard cost bert-base-uncased/ --infer --length 512
      regard cost lecture
    """
    from regard.core.config import override
    from regard.cost import meta_model, report
    from regard.cost.devices import efficiency_of, find_device
    from regard.cost.estimate import Scenario, estimate, with_recomputation

    if model in ("lecture", "lectures"):
        if length is not None and length < 1:
            raise typer.BadParameter(f"--length is {length}; at least 1 is needed")
        if json:
            _print(report.lectures_to_json())
        else:
            report.show(list(report.lecture_sections(length or 512)), after=report.LAYERS_ASSUME)
        return 0
    modes = [name for name, asked in (("train", train), ("infer", infer), ("decode", decode)) if asked]
    if len(modes) > 1:
        raise typer.BadParameter(f"one of --train, --infer and --decode, not {' and '.join(modes)}")
    if parallel not in ("auto", "ddp", "fsdp"):
        raise typer.BadParameter(f"--parallel is auto, ddp or fsdp, not {parallel!r}")
    if precision not in (None, "bfloat16", "float32"):
        raise typer.BadParameter(f"--precision is bfloat16 or float32, not {precision!r}")
    if efficiency is not None and not 0 < efficiency <= 1:
        raise typer.BadParameter(f"--efficiency lies between 0 and 1, not {efficiency}")
    if (saved := _saved_config(model)) is not None:
        name, size, config = model, None, override(saved, settings or [])
    else:
        name, size = meta_model.parse_model_name(model)
        config = meta_model.resolve_config(name, size, settings or [])
    if image is not None and not hasattr(config, "image_size"):
        raise typer.BadParameter(f"{name} looks at no images; leave out --image")
    asked = {"--length": length, "--source": source, "--target": target}
    if hasattr(config, "image_size") and (wrong := [option for option, value in asked.items() if value is not None]):
        raise typer.BadParameter(f"{name} looks at images and reads no tokens; instead of {wrong[0]} say --image")
    where = find_device(device)
    each, every = _tokens(tokens)
    found = estimate(
        Scenario(
            config,
            meta_model.InputShape(batch_size, length, source, target, _image(image)),
            mode=modes[0] if modes else "train",
            device=where,
            devices=devices,
            parallel=parallel,
            tensor_parallel=tensor_parallel,
            recompute=recompute,
            precision=precision or ("float32" if where.is_cpu else "bfloat16"),
            optimizer=optimizer,
            accumulate=accumulate,
            beam_size=beam_size,
            tokens=every,
            tokens_per_parameter=each,
            efficiency=efficiency_of(where, efficiency),
        )
    )
    found = with_recomputation(found)
    title = name if size is None else f"{name}:{size}"
    if json:
        _print(report.to_json(title, found))
    else:
        note = "" if saved is not None else meta_model.assumed_vocabulary(name, size, settings or [])
        heading = [*report.heading(title, found), *([note] if note else [])]
        report.show(list(report.sections(found)), heading, report.assumptions(found))
    return 0


def _saved_config(model: str) -> Any:
    """Return the Config of a saved model: of one that ships, of a run or of a folder; None for a name of MODELS."""
    from regard import api
    from regard.models import MODELS

    is_named = model not in MODELS and (model in api.zoo() or model in api.PACKAGED_MODELS)
    if not is_named and not (("/" in model or model not in MODELS) and Path(model).is_dir()):
        return None
    found = api.load(model)
    return getattr(found, "model", found).config


def _print(values: object) -> None:
    import json

    print(json.dumps(values, indent=2, ensure_ascii=False))


def _tokens(text: str | None) -> tuple[float | None, float | None]:
    """Return a number per parameter, or in total."""
    if text is None:
        return None, None
    try:
        number = float(text.removesuffix("x").replace(",", ""))
    except ValueError:
        number = 0.0
    if not number > 0 or number == float("inf"):
        raise typer.BadParameter(f"--tokens is a number such as 3e11, or 20x for so many a parameter, not {text!r}")
    return (number, None) if text.endswith("x") else (None, number)


def _image(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    words = text.lower().split("x")
    if len(words) > 2 or not all(word.isdecimal() and len(word) < 10 and int(word) for word in words):
        raise typer.BadParameter(f"--image is a number of pixels, 224, or rows and columns, 224x320, not {text!r}")
    return int(words[0]), int(words[-1])
