"""Graphs from files: edge lists and GraphML, within limits.

    edge list    two names of nodes a line, separated by spaces, tabs or a comma; # and % begin a comment
    GraphML      nodes, edges and whether they are directed; other data are left out

GraphML is XML, whose entities could expand to gigabytes or name other files: a file with a document type is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.parsers import expat

from regard.core.errors import BadInput
from regard.core.files import read_within

SUFFIXES = (".graphml", ".edges", ".edgelist")
MAX_BYTES = 2**28  # of a file


def decode_graph(source: str | Path | bytes, limit: int) -> tuple[list[str], list[tuple[int, int]], bool]:
    """Return the names of the nodes, the edges between their numbers, and whether they are directed."""
    named = "the file" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_within(Path(source), MAX_BYTES)
    try:
        if re.match(rb"(\xef\xbb\xbf)?\s*<", content):
            return _graphml(content, limit)
        if b"\0" in content[:4096]:
            raise BadInput("it is neither GraphML nor a list of edges")
        return _edge_list(content, limit)
    except BadInput as error:
        raise BadInput(f"{named} is not a graph that can be read: {error}") from None


def _edge_list(content: bytes, limit: int) -> tuple[list[str], list[tuple[int, int]], bool]:
    numbers, edges = dict[str, int](), list[tuple[int, int]]()
    for row, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = re.split(r"[\s,;]+", line.strip())
        if not words[0] or words[0][0] in "#%":
            continue
        if len(words) < 2:
            raise BadInput(f"line {row:,} has one word, '{words[0][:40]}'; expected the names of two nodes")
        if len(edges) >= limit:
            raise BadInput(f"it has more than {limit:,} edges")
        edges.append((numbers.setdefault(words[0], len(numbers)), numbers.setdefault(words[1], len(numbers))))
    return list(numbers), edges, False


def _graphml(content: bytes, limit: int) -> tuple[list[str], list[tuple[int, int]], bool]:
    numbers, edges = dict[str, int](), list[tuple[int, int]]()
    found: dict[str, Any] = {"directed": False, "graphs": 0}

    def refuse(*_: Any) -> None:
        raise BadInput("it has a document type or entities, which are not read")

    def start(tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if name == "graph":
            found["graphs"] += 1
            found["directed"] = attributes.get("edgedefault") == "directed"
        elif name == "node" and "id" in attributes:
            numbers.setdefault(attributes["id"], len(numbers))
        elif name == "edge":
            if len(edges) >= limit:
                raise BadInput(f"it has more than {limit:,} edges")
            if not {"source", "target"} <= attributes.keys():
                raise BadInput("an edge has no source or no target")
            ends = (numbers.setdefault(attributes[end], len(numbers)) for end in ("source", "target"))
            edges.append(tuple(ends))  # type: ignore[arg-type]
        if len(numbers) > limit:
            raise BadInput(f"it has more than {limit:,} nodes")

    parser: Any = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    parser.StartElementHandler = start
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise BadInput(f"its XML is damaged ({error})") from None
    if found["graphs"] != 1:
        raise BadInput(f"expected one graph, found {found['graphs']}")
    return list(numbers), edges, found["directed"]
