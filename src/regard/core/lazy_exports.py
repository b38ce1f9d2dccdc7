"""Lazy exports: a package offers the classes of its modules by name, and imports a module when one of them is used.

    __getattr__, __dir__ = lazy_exports(__name__, {"encoder": ("Encoder", "EncoderBlock")}, NORMS)

A name must not be that of a module of the package: importing the module would replace it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.core.spec import Registry


def lazy_exports(
    package: str, modules: Mapping[str, tuple[str, ...]], *registries: Registry
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: the names of its modules and the classes of its registries."""
    own = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def exports() -> dict[str, str]:  # not computed once: classes can be registered later
        return {cls: module for registry in registries for module, cls in registry.values()} | own

    def find(name: str) -> Any:
        module = exports().get(name)
        if module is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(module), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exports()})

    return find, names
