"""Lazy exports: a package offers the classes of its modules by name, and imports a module when one of them is used.

    __getattr__, __dir__ = lazy_exports(__name__, {"encoder": ("Encoder", "EncoderBlock")}, NORMS)

A name must not be that of a module of the package: importing the module would replace it.

Type checkers do not see what is imported on use. For them a package has a stub, `_exports.pyi`, with the same names as
imports, which its ``__init__.py`` reads under TYPE_CHECKING. ``python scripts/make_stubs.py`` writes all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.core.spec import Registry

EXPORTS: dict[str, Callable[[], dict[str, str]]] = {}  # package -> its names, each with its module


def lazy_exports(
    package: str, modules: Mapping[str, tuple[str, ...]], *registries: Registry
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: the names of its modules and the classes of its registries."""
    own = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def exports() -> dict[str, str]:  # not computed once: classes can be registered later
        return {cls: module for registry in registries for module, cls in registry.values()} | own

    def find(name: str) -> Any:
        module = exports().get(name)
        if module is not None:
            return getattr(import_module(module), name)
        if name in _modules(package):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    if modules or registries:
        EXPORTS[package] = exports
    return find, public_dir(package, exports)


def stub(package: str) -> str:
    """Return what a package exports lazily, and its modules, as imports for type checkers."""
    own = {name: module for name, module in EXPORTS[package]().items() if module.startswith("regard.")}
    modules = (f"from {package} import {name} as {name}" for name in _modules(package) if not name.startswith("_"))
    names = (f"from {module} import {name} as {name}" for name, module in own.items())
    return "\n".join([f"# Written by scripts/make_stubs.py from {package}.", *sorted(modules), *sorted(names), ""])


def public_dir(package: str, exports: Callable[[], Iterable[str]] = tuple) -> Callable[[], list[str]]:
    """Return `__dir__` of a package: what it defines, its registries and what it exports, nothing that it imports.

    A package that has none of these shows its modules.
    """

    def names() -> list[str]:
        module = sys.modules[package]
        own = (name for name, value in vars(module).items() if _is_defined_in(package, name, value))
        found = {name for name in {*exports(), *own, *getattr(module, "__all__", ())} if name[0] != "_"}
        return sorted(found or _modules(package))

    return names


def _modules(package: str) -> list[str]:
    """Return the names of the modules in a package."""
    return [each.name for each in iter_modules(sys.modules[package].__path__)]


def _is_defined_in(package: str, name: str, value: Any) -> bool:
    """Whether a name in a package's namespace is a registry of it, or a class or a function of one of its modules."""
    module = str(getattr(value, "__module__", ""))
    return (isinstance(value, dict) and name.isupper()) or (callable(value) and f"{module}.".startswith(f"{package}."))
