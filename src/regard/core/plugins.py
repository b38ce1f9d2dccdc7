"""Plugins: modules outside the package that add entries to its registries.

    REGARD_PLUGINS   files, or names of importable modules, separated by commas:
                     ``REGARD_PLUGINS=quiet.py regard list attention``
    entry points     of installed packages, in the group "regard.plugins"

They are imported when a name is looked up that no registry has, or when names are listed.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from regard.core.errors import RegardError


@lru_cache(maxsize=1)
def load_plugins() -> None:
    """Import all plugins, once."""
    from importlib.metadata import entry_points

    modules = {
        name.strip(): "REGARD_PLUGINS" for name in os.environ.get("REGARD_PLUGINS", "").split(",") if name.strip()
    }
    modules |= {entry.module: f"the entry point '{entry.name}'" for entry in entry_points(group="regard.plugins")}
    for module, source in modules.items():
        try:
            if module.endswith(".py"):
                _import_file(Path(module))
            else:
                import_module(module)
        except Exception as error:  # a plugin may raise anything
            why = f"{type(error).__name__}: {error}"
            raise RegardError(f"cannot import plugin '{module}', named by {source}: {why}") from error


def _import_file(file: Path) -> None:
    """Import a file as the module of its name."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    found = spec_from_file_location(file.stem, file.resolve())
    if found is None or found.loader is None or file.stem in sys.modules:
        raise ImportError(f"the name '{file.stem}' is taken by another module; rename the file")
    module = module_from_spec(found)
    sys.modules[file.stem] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
