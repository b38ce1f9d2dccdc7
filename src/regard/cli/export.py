"""``regard export``: a model as files that run without Regard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model by name (regard list zoo), a folder or a run.")],
    onnx: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write graphs of ONNX, for ONNX Runtime and others.")
    ] = None,
    torch: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write programs of torch.export, for PyTorch.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the model, on batches of other sizes, and run the script.")
    ] = False,
    network: Annotated[
        bool, typer.Option("--network", help="Export the network alone: tensors in, tensors out.")
    ] = False,
) -> int:
    """Write a model as ONNX or torch.export, with labels, tokenizer, preprocessing and a script that needs no Regard.

    A model that writes text becomes two graphs: start reads the input, step writes one token. With --check the exported
    files are compared with the model, and the script's answers with Regard's; where they differ, nothing is written.

    \b
      regard export languages --onnx languages-onnx --check
      python languages-onnx/run.py "Where is the station?"
      regard export en-de --torch en-de-torch
      regard export runs/mine --onnx mine-onnx
    """
    asked = [(kind, folder) for kind, folder in (("onnx", onnx), ("torch", torch)) if folder is not None]
    if not asked:
        raise typer.BadParameter("say where to: --onnx FOLDER, or --torch FOLDER")
    from regard.cli import print_status
    from regard.cli.output_files import replacement_note
    from regard.cli.prepare import load_predictor
    from regard.export import export_model
    from regard.export.formats import check_packages

    for kind, _ in asked:
        check_packages(kind)
    print_status(f"loading {model}")
    loaded = load_predictor(model)
    for kind, folder in asked:
        print_status(f"exporting {model} to {folder} (--{kind}); this takes seconds to a minute")
        note = replacement_note(folder)
        found = export_model(loaded, folder, kind, check=check, network=network)
        if check:
            for each in found.differences:
                print(each)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(f"{folder}: {', '.join(found.files)} ({size:.1f} MiB){note}")
    return 0
