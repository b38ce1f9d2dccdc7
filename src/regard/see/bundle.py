"""Bundle the explorer's JavaScript modules into one script: browsers load no modules from a file on disk.

Every module becomes a function that is called once, in dependency order, and returns what the module exports:

    import { row } from "./store.js";          const { row } = modules["store.js"];
    import * as remote from "./remote.js";     const remote = modules["remote.js"];
    import("./lab.js")                         Promise.resolve(modules["lab.js"])
    export function mount(...) { ... }         function mount(...) { ... }   ...   return { mount };

This is not a JavaScript parser: it handles the forms that the page uses, at the beginning of a line, and rejects
others. Exports are copied, so they must not be reassigned (`export let` is rejected); import cycles are rejected.
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
    """Return one script equivalent to the module `entry`."""
    parts: dict[str, str] = {}
    exported: dict[str, set[str]] = {}
    _add(entry, read, parts, exported, ())
    lines = [f"modules[{name!r}] = await (async () => {{\n{body}\n}})();" for name, body in parts.items()]
    text = '"use strict";\n(async () => {\nconst modules = {};\n' + "\n".join(lines) + "\n})();\n"
    if re.search(r"</script|<!--", text, re.IGNORECASE):
        raise ValueError("A module contains '</script' or '<!--' and cannot be inlined.")
    return text


def _add(name: str, read: Read, parts: dict[str, str], exported: dict[str, set[str]], above: tuple[str, ...]) -> None:
    """Add a module after its dependencies; check that every imported name is exported."""
    if name in parts:
        return
    if name in above:
        raise ValueError(f"Import cycle: {' -> '.join([*above, name])}")
    body, needs, exports = module_body(name, read(name))
    for other, names in needs:
        _add(other, read, parts, exported, (*above, name))
        if missing := names - exported[other]:
            raise ValueError(f"{name} imports {', '.join(sorted(missing))} from {other}, which does not export it.")
    parts[name], exported[name] = body, exports


def module_body(name: str, text: str) -> tuple[str, list[tuple[str, set[str]]], set[str]]:
    """Return a module as a function body, its imports as (module, names), and the names it exports."""
    needs, exports = list[tuple[str, set[str]]](), dict[str, str]()

    def imported(found: re.Match[str]) -> str:
        _, whole, some, other = found.groups()
        needs.append((other, set() if whole else {inner for inner, _ in _pairs(some)}))
        return f"const {whole or some.replace(' as ', ': ')} = modules[{other!r}];"

    def bare(found: re.Match[str]) -> str:
        needs.append((found[1], set()))
        return ""

    def again(found: re.Match[str]) -> str:
        needs.append((found[2], {inner for inner, _ in _pairs(found[1])}))
        exports.update((outer, f"modules[{found[2]!r}].{inner}") for inner, outer in _pairs(found[1]))
        return ""

    def names(found: re.Match[str]) -> str:
        exports.update((outer, inner) for inner, outer in _pairs(found[1]))
        return ""

    def declared(found: re.Match[str]) -> str:
        exports[found[2]] = found[2]
        return f"{found[1]} {found[2]}"

    def later(found: re.Match[str]) -> str:
        needs.append((found[1], set()))
        return f"Promise.resolve(modules[{found[1]!r}])"

    body = text
    for form, replace in (
        (_IMPORT, imported), (_BARE, bare), (_AGAIN, again), (_NAMES, names), (_DECLARED, declared), (_LATER, later),
    ):  # fmt: skip
        body = form.sub(replace, body)
    if left := _OTHER.search(_without_comments(body)):
        raise ValueError(f"{name} uses an import or export form that cannot be bundled: {left[0].strip()[:80]}")
    returned = ", ".join(f"{outer}: {inner}" for outer, inner in exports.items())
    return f"{body.strip()}\nreturn {{ {returned} }};", needs, set(exports)


def _pairs(braces: str) -> list[tuple[str, str]]:
    """``{ a, b as c }`` as (a, a), (b, c)."""
    words = [part.split() for part in braces.strip("{} \n").split(",") if part.strip()]
    return [(word[0], word[-1]) for word in words]


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.DOTALL | re.MULTILINE)
