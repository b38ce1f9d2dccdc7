"""Read what the source of a module says, without importing what it imports: a card of a Transformer needs no torch.

    module = read_module("regard.models.gpt")
    module.__doc__, module.SIZES["xl"], module.Config     # docstring, a dict, a dataclass
    module.GPT.forward_methods                            # a class that cannot be made without torch, read by attribute

A name is bound by running only the statement that binds it, and then those that it needs in turn. Modules of this
package are read likewise; a module that is imported already is used as it is. Where a name cannot be had without a
heavy library, its module is imported after all. Files are not parsed as a whole, which would take longer than all the
rest: a statement begins where a line of formatted source begins without a space.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar  # noqa: F401  # dataclasses look for ClassVar among the names of this module

PACKAGE = __name__.split(".")[0]


class _NotReadable(Exception):
    """Only an import of its module can bind a name."""


def read_module(name: str) -> Any:
    """Return an object with the names of a module as attributes: the module itself where it is imported already."""
    return sys.modules.get(name) or _read(name)


@cache
def _read(name: str) -> Any:
    file = _file(name)
    return import_module(name) if file is None else SourceModule(name, file)


def read_file(file: Path) -> SourceModule:
    """Return the names of a file that is no module of a package; it may import the files beside it."""
    return SourceModule(file.stem, file)


@cache
def _file(name: str) -> Path | None:
    """Return the file of a module of this package."""
    path = Path(__file__).parents[1].joinpath(*name.split(".")[1:])
    files = (path.with_suffix(".py"), path / "__init__.py") if name.split(".")[0] == PACKAGE else ()
    return next((file for file in files if file.is_file()), None)


class SourceModule:
    """The names of a file, bound when they are asked for."""

    def __init__(self, name: str, file: Path) -> None:
        self.__name__, self.__file__ = name, str(file)
        statements = _statements(file.read_text(encoding="utf-8").splitlines(keepends=True))
        self.__doc__ = _docstring(statements)
        self.names = _Names(self, _by_name(statements))

    def __getattr__(self, name: str) -> Any:
        if name in self.names.bound:
            return self.names.bound[name]
        if name not in self.names.statements:
            raise AttributeError(f"{self.__name__} binds no {name}")
        try:
            return self.names[name]
        except Exception:
            return getattr(import_module(self.__name__), name)


class _Names(dict[str, Any]):
    """What the statements of a module have for builtins: Python asks it last for a name, and it binds the missing ones.

    (Of the globals, Python does not ask for missing names everywhere.)
    """

    def __init__(self, module: SourceModule, statements: dict[str, str]) -> None:
        super().__init__({name: value for name, value in vars(builtins).items() if name not in statements})
        self.module, self.statements = module, statements
        self.bound: dict[str, Any] = {"__name__": __name__, "__builtins__": self}

    def __missing__(self, name: str) -> Any:
        if name not in self.statements:
            raise KeyError(name)
        self.bound[name] = found = self._bind(name, self.statements[name])
        return found

    def _bind(self, name: str, statement: str) -> Any:
        if not statement.startswith(("import ", "from ")):
            is_class = statement.startswith("class ", _after_decorators(statement))
            return self._class(name, statement) if is_class else self.run(statement, name)
        (node,) = ast.parse(statement).body
        assert isinstance(node, ast.Import | ast.ImportFrom)
        whole = isinstance(node, ast.Import)
        alias = next(each for each in node.names if name == (each.asname or each.name.split(".")[0 if whole else -1]))
        if isinstance(node, ast.ImportFrom):
            return self._import_from(str(node.module), alias.name)
        return self._import(alias.name if alias.asname else name)

    def _import_from(self, module: str, name: str) -> Any:
        if _file(f"{module}.{name}"):
            return read_module(f"{module}.{name}")
        found = self._import(module)
        return found.names[name] if isinstance(found, SourceModule) else getattr(found, name)

    def _import(self, name: str) -> Any:
        """Return a module of this package as it is read, a module of Python as it is; others are not readable."""
        if name.split(".")[0] == PACKAGE:
            return read_module(name)
        if name.split(".")[0] in sys.stdlib_module_names:
            return import_module(name)
        beside = Path(self.module.__file__).with_name(f"{name}.py")
        if beside.is_file():
            return read_file(beside)
        raise _NotReadable(name)

    def _class(self, name: str, statement: str) -> Any:
        found = SourceClass(name, statement, self)
        if statement.startswith("@") or not found.base_nodes:  # a dataclass, or a plain class
            with suppress(_NotReadable):
                return self.run(statement, name)
        return found

    def run(self, statement: str, name: str) -> Any:
        """Run a statement, and return what it binds to a name."""
        local: dict[str, Any] = {}
        exec(compile(statement, self.module.__file__, "exec", annotations.compiler_flag, True), self.bound, local)
        if isinstance(found := local[name], type) and found.__module__ == __name__:
            found.__module__ = self.module.__name__
            _SOURCES[found] = statement
        return found

    def evaluate(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        return eval(compile(ast.Expression(node), self.module.__file__, "eval"), self.bound)


_SOURCES: dict[type, str] = {}  # of the classes that were made from a statement


def class_source(cls: type) -> str:
    """Return the source of a class, read or imported."""
    return _SOURCES.get(cls) or inspect.getsource(cls)


def constructor(cls: Any) -> inspect.Signature:
    """Return the arguments of a class, read or imported."""
    if not isinstance(cls, SourceClass):
        return inspect.signature(cls)
    try:
        found = inspect.signature(cls.find("__init__"))
    except AttributeError:
        return inspect.Signature()
    return found.replace(parameters=[*found.parameters.values()][1:])


class SourceClass:
    """A class that is read, not made: its docstring, and attributes of its own and of its base classes."""

    def __init__(self, name: str, statement: str, names: _Names) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = names.module.__name__
        self.names, self.lines = names, statement.splitlines(keepends=True)
        start = next(n for n, line in enumerate(self.lines) if line.startswith("class "))
        self.header = next(n for n in range(start, len(self.lines)) if _ends_header(self.lines[n])) + 1
        (node,) = ast.parse("".join(self.lines[start : self.header]).rstrip() + " ...").body
        assert isinstance(node, ast.ClassDef)
        self.base_nodes = node.bases

    @cached_property
    def body(self) -> list[str]:
        """The statements of the class."""
        return _statements([line.removeprefix("    ") for line in self.lines[self.header :]])

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return _docstring(self.body)

    @cached_property
    def made(self) -> Any:
        """The class itself; raise `_NotReadable` where a base class is not to be had."""
        return self.names.run("".join(self.lines), self.__name__)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.made,)  # Python asks for a class to inherit from

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.made(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__init__":
            raise AttributeError(name)
        try:
            return self.find(name)
        except AttributeError:
            raise
        except Exception:
            return getattr(getattr(import_module(self.__module__), self.__name__), name)

    def find(self, name: str) -> Any:
        """Return an attribute of the class or of its base classes."""
        if (statement := _by_name(self.body).get(name)) is not None:
            return self.names.run(statement, name)
        for base in self.bases():
            with suppress(AttributeError):
                return base.find(name) if isinstance(base, SourceClass) else getattr(base, name)
        raise AttributeError(f"class {self.__name__} has no {name} that can be read")

    def __getitem__(self, parameters: Any) -> SourceClass:
        return self  # of a generic class

    __or__ = __getitem__

    def bases(self) -> Iterator[Any]:
        """Yield the base classes that can be had."""
        for node in self.base_nodes:
            with suppress(_NotReadable):
                yield self.names.evaluate(node)


# -- statements --------------------------------------------------------------------------------------------------------

_BINDS = re.compile(r"(?:async )?(?:def|class) (\w+)|(\w+(?:, \w+)*)(?:: [^=]+)? = ")

_CONTINUES = ("else", "elif", "except", "finally")
_CHANGES = re.compile(r"(\w+)(?:\[[^=]*\] =| [|+]=|\.update\()")  # a value that is bound already


def _statements(lines: list[str]) -> list[str]:
    """Return the statements of formatted source: each begins in the first column, outside of a string of many lines."""
    found: list[list[str]] = []
    inside = decorated = False  # of a string in triple quotes; behind a decorator
    for line in lines:
        begins = not inside and line[0] not in " \n\r#)]}" and not line.startswith(_CONTINUES)
        if (begins and not decorated) or not found:
            found.append([])
        decorated = line.startswith("@") if begins else decorated
        found[-1].append(line)
        inside ^= line.count('"""') % 2 == 1
    return ["".join(statement) for statement in found]


def _by_name(statements: list[str]) -> dict[str, str]:
    """Return statements by the names that they bind; the last one counts."""
    found = {}
    for statement in statements:
        if statement.startswith(("from ", "import ")):
            words = re.sub(r"#.*|[()\\]", " ", statement.split(" import ", 1)[-1].removeprefix("import "))
            for name in words.split(","):
                if name.strip():
                    found[name.split()[-1].split(".")[0]] = statement
        elif match := _BINDS.match(statement[_after_decorators(statement) :]):
            for name in (match[1] or match[2]).split(", "):
                found[name] = statement
        elif (match := _CHANGES.match(statement)) and match[1] in found:
            found[match[1]] += statement
    return found


def _after_decorators(statement: str) -> int:
    """Return where the `def` or `class` of a decorated statement begins."""
    match = re.search(r"^(?:def|class|async) ", statement, re.MULTILINE) if statement.startswith("@") else None
    return match.start() if match else 0


def _ends_header(line: str) -> bool:
    return line.split("  #")[0].rstrip().endswith(":") or line.rstrip().endswith("...")


def _docstring(statements: list[str]) -> str | None:
    """Return the string that comes first."""
    first = next((each for each in statements if each.strip()), "")
    if not re.match(r"[rR]?(\"|')", first):
        return None
    value = ast.literal_eval(first.strip())
    return value if isinstance(value, str) else None
