"""The page's modules as one script, for a file that is opened from disk, where a browser loads no modules.

Every module becomes a function of its own, called once, in the order in which they need one another; what it exports is
what the function gives back:

    import { row } from "./store.js";          const { row } = modules["store.js"];
    import * as remote from "./remote.js";     const remote = modules["remote.js"];
    import("./lab.js")                         Promise.resolve(modules["lab.js"])
    export function mount(...) { ... }         function mount(...) { ... }   ...   return { mount };

This is no parser of JavaScript: it knows the forms that the page uses, at the beginning of a line, and refuses others.
Names are snapshots, so what is exported must not be assigned again (`export let` is refused), and modules must not need
one another in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Read = Callable[[str], str]  # the name of a module -> its text

_FROM = r"""from\s+["']\./([\w./-]+)["'];?"""
_IMPORT = re.compile(rf"^import\s+(?:(\*\s+as\s+(\w+))|(\{{[^}}]*\}}))\s*{_FROM}", re.MULTILINE)
_BARE = re.compile(r"""^import\s+["']\./([\w./-]+)["'];?""", re.MULTILINE)
_AGAIN = re.compile(rf"^export\s+(\{{[^}}]*\}})\s*{_FROM}", re.MULTILINE)
_NAMES = re.compile(r"^export\s+(\{[^}]*\});?", re.MULTILINE)
_DECLARED = re.compile(r"^export\s+((?:async\s+)?function\*?|class|const)\s+(\w+)", re.MULTILINE)
_LATER = re.compile(r"""\bimport\(\s*["']\./([\w./-]+)["']\s*\)""")
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\s*\(.*|\bimport\.meta\b.*", re.MULTILINE)


def bundle(entry: str, read: Read) -> str:
    """One script that does what the module `entry` does."""
    parts: dict[str, str] = {}
    given: dict[str, set[str]] = {}
    _add(entry, read, parts, given, ())
    lines = [f"modules[{name!r}] = await (async () => {{\n{body}\n}})();" for name, body in parts.items()]
    text = '"use strict";\n(async () => {\nconst modules = {};\n' + "\n".join(lines) + "\n})();\n"
    if re.search(r"</script|<!--", text, re.IGNORECASE):
        raise ValueError("a module of the page holds the end of a script, so it cannot stand in one")
    return text


def _add(name: str, read: Read, parts: dict[str, str], given: dict[str, set[str]], above: tuple[str, ...]) -> None:
    """This module behind all that it needs; what it takes of another is what that one gives."""
    if name in parts:
        return
    if name in above:
        raise ValueError(f"modules of the page need one another in a circle: {' -> '.join([*above, name])}")
    body, needs, gives = module_body(name, read(name))
    for other, wanted in needs:
        _add(other, read, parts, given, (*above, name))
        if missing := wanted - given[other]:
            raise ValueError(f"{name} wants {', '.join(sorted(missing))} of {other}, which has no such thing")
    parts[name], given[name] = body, gives


def module_body(name: str, text: str) -> tuple[str, list[tuple[str, set[str]]], set[str]]:
    """A module as the body of a function, the modules that it needs with what it takes of each, and what it gives."""
    needs, gives = list[tuple[str, set[str]]](), dict[str, str]()

    def imported(found: re.Match[str]) -> str:
        _, whole, some, other = found.groups()
        needs.append((other, set() if whole else {inner for inner, _ in _pairs(some)}))
        return f"const {whole or some.replace(' as ', ': ')} = modules[{other!r}];"

    def bare(found: re.Match[str]) -> str:
        needs.append((found[1], set()))
        return ""

    def again(found: re.Match[str]) -> str:
        needs.append((found[2], {inner for inner, _ in _pairs(found[1])}))
        gives.update((outer, f"modules[{found[2]!r}].{inner}") for inner, outer in _pairs(found[1]))
        return ""

    def names(found: re.Match[str]) -> str:
        gives.update((outer, inner) for inner, outer in _pairs(found[1]))
        return ""

    def declared(found: re.Match[str]) -> str:
        gives[found[2]] = found[2]
        return f"{found[1]} {found[2]}"

    def later(found: re.Match[str]) -> str:
        needs.append((found[1], set()))
        return f"Promise.resolve(modules[{found[1]!r}])"

    body = text
    for form, said in (
        (_IMPORT, imported), (_BARE, bare), (_AGAIN, again), (_NAMES, names), (_DECLARED, declared), (_LATER, later),
    ):  # fmt: skip
        body = form.sub(said, body)
    if left := _OTHER.search(_without_comments(body)):
        raise ValueError(f"{name} uses a form that cannot be put into one script: {left[0].strip()[:80]}")
    given = ", ".join(f"{outer}: {inner}" for outer, inner in gives.items())
    return f"{body.strip()}\nreturn {{ {given} }};", needs, set(gives)


def _pairs(braces: str) -> list[tuple[str, str]]:
    """``{ a, b as c }`` as (a, a), (b, c)."""
    words = [part.split() for part in braces.strip("{} \n").split(",") if part.strip()]
    return [(word[0], word[-1]) for word in words]


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.DOTALL | re.MULTILINE)
