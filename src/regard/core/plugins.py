"""Plugins: modules outside the package that add entries to its registries.

    REGARD_PLUGINS   names of importable modules, separated by commas: ``REGARD_PLUGINS=quiet regard list attention``
    entry points     of installed packages, in the group "regard.plugins"

They are imported when a name is looked up that no registry has, or when names are listed.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module

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
            import_module(module)
        except Exception as error:  # a plugin may raise anything
            why = f"{type(error).__name__}: {error}"
            raise RegardError(f"cannot import plugin '{module}', named by {source}: {why}") from error
