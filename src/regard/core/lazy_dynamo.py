"""Decorators of torch.compiler that do not import torch._dynamo.

torch.compiler.disable and its like import torch._dynamo, which takes as long as importing torch itself: two seconds of
every command, whether anything is compiled or not. Here they are deferred until something else imports it.

    @disable_compile                   torch.compiler.disable
    @disable_compile(recursive=False)  the same for the function alone; what it calls may be compiled
    @assume_constant_result            torch.compiler.assume_constant_result
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
    """Never trace this function or method; unless `recursive`, what it calls may be compiled."""
    if function is None:
        return lambda function: _disable(function, recursive)
    return _disable(function, recursive)


def assume_constant_result(function: F) -> F:
    """Treat the return value as a constant of the compiled graph."""
    if DYNAMO in sys.modules:
        return torch.compiler.assume_constant_result(function)
    _deferred.append(lambda: torch.compiler.assume_constant_result(function))
    return function


def _disable(function: FunctionType, recursive: bool) -> Callable[..., Any]:
    if DYNAMO in sys.modules or "<locals>" in function.__qualname__:  # loaded, or a local function
        return torch.compiler.disable(function, recursive)
    _deferred.append(lambda: _replace_function(function, torch.compiler.disable(function, recursive)))
    return function


def _replace_function(old: FunctionType, new: Callable[..., Any]) -> None:
    """Replace a method in its class, or a function in every loaded module of its top-level package."""
    owner, _, name = old.__qualname__.rpartition(".")
    if owner:
        holder: Any = sys.modules[old.__module__]
        for part in owner.split("."):
            holder = getattr(holder, part)
        setattr(holder, name, new)
        return
    package = old.__module__.partition(".")[0]
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == package]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


class _DynamoImportHook:
    """Import hook: apply the deferred decorators once torch._dynamo is loaded."""

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
