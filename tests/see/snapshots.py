"""A made-up inspection for export tests: tokens that look like script, an odd size, known weights."""

from __future__ import annotations

import numpy as np

from regard.see.html_export import Snapshot

EVIL = (
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "<!--",
    "a\u2028b",
    "\ud83d",
    "]]>",
    "{{SCRIPT}}",
)


def make_snapshot(n: int = 7, heads: int = 3, words: tuple[str, ...] = EVIL) -> Snapshot:
    """Two maps of known weights over the words."""
    rng = np.random.default_rng(0)
    maps, about = {}, []
    for layer in range(2):
        raw = rng.dirichlet(np.full(n, 0.3), (heads, n)).astype(np.float32)
        name = f"encoder.blocks.{layer}.mix"
        maps[name] = {"raw": raw, "value": raw * 2}
        about.append(
            {"name": name, "kind": "self", "layer": layer, "heads": heads, "rows": "input", "columns": "input", "n": n,
             "m": n, "exact": True}
        )  # fmt: skip
    tokens = [words[k % len(words)] for k in range(n)]
    side = {"name": "input", "tokens": tokens, "positions": [{"none": True}] * n, "special": [False] * n}
    return Snapshot(
        {
            "id": "a1",
            "model": words[0],
            "task": "language_modeling",
            "inputs": {"text": " ".join(words)},
            "axes": {"input": side},
            "output": {"text": words[1]},
            "maps": about,
            "picture": False,
            "audio": None,
        },
        maps,
        rollout=np.eye(n, dtype=np.float32),
    )


def cross_snapshot(n: int = 7, m: int = 13, heads: int = 2) -> Snapshot:
    """One map between two sides of different lengths."""
    raw = np.random.default_rng(1).dirichlet(np.full(m, 0.4), (heads, n)).astype(np.float32)
    name = "decoder.blocks.0.cross"

    def side(called: str, letter: str, many: int) -> dict[str, object]:
        tokens = [f"{letter}{k}" for k in range(many)]
        return {"name": called, "tokens": tokens, "positions": [{"none": True}] * many, "special": [False] * many}

    map_ = {"name": name, "kind": "cross", "layer": 0, "heads": heads, "rows": "target", "columns": "source", "n": n,
            "m": m, "exact": True, "views": ["raw"]}  # fmt: skip
    about = {
        "id": "a2",
        "model": "en-de",
        "task": "translation",
        "inputs": {"text": "s"},
        "axes": {"source": side("source", "s", m), "target": side("target", "t", n)},
        "output": {"text": "t"},
        "maps": [map_],
        "picture": False,
        "audio": None,
    }
    return Snapshot(about, {name: {"raw": raw}})
