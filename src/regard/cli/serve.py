"""``regard serve``: models behind HTTP, until it is told to stop."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from regard.cli.options import Device, Int8

LIMITS, ACCESS = "Limits", "Access"  # panels of the help


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Models by name (regard list zoo), folders, runs, or NAME=FOLDER.",
            show_default="all that ship",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is every one.", rich_help_panel=ACCESS)
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 is any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Token that every request must send.",
            show_default="$REGARD_TOKEN",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Host name of this service besides localhost; may be repeated.", rich_help_panel=ACCESS
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Origin of pages that may send requests: https://example.org", rich_help_panel=ACCESS
        ),
    ] = None,
    explore: Annotated[bool, typer.Option("--explore", help="Also serve the explorer (regard explore).")] = False,
    max_batch_size: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Inputs that run in one batch.", rich_help_panel=LIMITS)
    ] = 64,
    wait: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1000.0,
            metavar="MS",
            help="Milliseconds to wait for more inputs of a batch.",
            rich_help_panel=LIMITS,
        ),
    ] = 5.0,
    max_queue_size: Annotated[
        int,
        typer.Option(min=1, max=65536, metavar="N", help="Requests that may wait for a model.", rich_help_panel=LIMITS),
    ] = 256,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600.0, metavar="S", help="Seconds after which a request fails.", rich_help_panel=LIMITS
        ),
    ] = 30.0,
    device: Device = "auto",
    int8: Int8 = False,
) -> int:
    """Serve models over HTTP, with an OpenAPI schema, streaming and dynamic batching.

    A browser shows at / which models there are, and at /docs every route with a curl line to paste.

    Only this computer can send requests, unless --host says otherwise; then set a --token too. Ctrl-C stops the service
    after the requests under way.

    \b
      regard serve
      regard serve en-de shakespeare
      curl localhost:8000/v1/translate -H 'Content-Type: application/json' -d '{"inputs": ["Two dogs."]}'
      regard serve en-de --host 0.0.0.0 --token WORD --allow-host example.org
    """
    import ipaddress
    import logging

    from regard.cli import print_status
    from regard.cli.explore import load_models, servable
    from regard.serve.http import app, server
    from regard.serve.http.docs_page import curl_line
    from regard.serve.http.model_pool import ModelPool
    from regard.serve.http.prepare import describe_device
    from regard.serve.http.settings import Settings

    secret = token or os.environ.get("REGARD_TOKEN") or None
    known = ModelPool(
        models or servable(),
        device=device,
        optimise=not explore,
        int8=int8,
        max_queue_size=max_queue_size,
        max_batch_size=max_batch_size,
        wait=wait / 1000,
    )
    waiting = server.listen(host, port)
    load_models(known)
    settings = Settings(
        explore=explore,
        token=secret,
        allowed_hosts=tuple(allow_host or ()),
        cors_origins=tuple(cors or ()),
        timeout=timeout,
    )
    address = waiting.getsockname()[0]
    if secret is None and not ipaddress.ip_address(address).is_loopback:
        print_status("anybody who can reach this computer can ask: give a --token, or leave out --host")
    url, first = server.socket_url(waiting), known.names()[0]
    where = f"{', '.join(known.names())} at {url}"
    print_status(f"serving {where} ({describe_device(known.get(first))}); Ctrl-C stops")
    print_status(f"try {curl_line(url, first, type(known.get(first)), secret is not None)}; more at {url}/docs")
    logging.getLogger("regard").setLevel(logging.ERROR)  # what strangers send is not worth a line each
    server.serve(app.make_app(known, settings), waiting)
    print_status("stopped")
    return 0
