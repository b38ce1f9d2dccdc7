"""Words for torch.compile that do not import it.

torch.compiler.disable and its like import the compiler, which takes as long as PyTorch itself: two seconds of every
command, whether anything is compiled or not. Here they take effect when the compiler comes, by whoever imports it.

    @uncompiled                   torch.compiler.disable
    @uncompiled(recursive=False)  the same for the function alone, not for what it calls
    @constant                     torch.compiler.assume_constant_result
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any, TypeVar, overload

import torch

DYNAMO = "torch._dynamo"
F = TypeVar("F", bound=Callable[..., Any])
_deferred: list[Callable[[], Any]] = []


@overload
def disable_compile(function: F) -> F: ...
@overload
def disable_compile(*, recursive: bool = True) -> Callable[[F], F]: ...
def disable_compile(function: Any = None, *, recursive: bool = True) -> Any:
    """Of a module or of a class: run as Python, never traced; unless recursive, what it calls may be compiled."""
    if function is None:
        return lambda function: _disable(function, recursive)
    return _disable(function, recursive)


def assume_constant_result(function: F) -> F:
    """What it returns is a constant of the graph: it depends on nothing that changes."""
    if DYNAMO in sys.modules:
        return torch.compiler.assume_constant_result(function)
    _deferred.append(lambda: torch.compiler.assume_constant_result(function))
    return function


def _disable(function: FunctionType, recursive: bool) -> Callable[..., Any]:
    if DYNAMO in sys.modules or "<locals>" in function.__qualname__:  # it is there, or the function cannot be found
        return torch.compiler.disable(function, recursive)
    _deferred.append(lambda: _replace_function(function, torch.compiler.disable(function, recursive)))
    return function


def _replace_function(old: FunctionType, new: Callable[..., Any]) -> None:
    """Put a function where another one is: in its class, or in every module of ours that has it."""
    owner, _, name = old.__qualname__.rpartition(".")
    if owner:
        holder: Any = sys.modules[old.__module__]
        for part in owner.split("."):
            holder = getattr(holder, part)
        setattr(holder, name, new)
        return
    ours = old.__module__.partition(".")[0]
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == ours]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


class _DynamoImportHook:
    """Stands at the imports until the compiler comes, lets it in, and does what has waited for it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            run(module)
            while _deferred:
                _deferred.pop()()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if DYNAMO not in sys.modules:
    sys.meta_path.insert(0, _DynamoImportHook())
