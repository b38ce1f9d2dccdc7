"""Parts from outside: modules that put lines of their own into the tables, so that every command knows their names.

    REGARD_PLUGINS     modules that can be imported, with commas between: ``REGARD_PLUGINS=quiet regard list attention``
    entry points     of installed packages, in the group "regard.plugins"

They are imported when a name is asked for that no table has, or when names are listed; until then nothing is paid.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module

from regard.core.errors import RegardError


@lru_cache(maxsize=1)
def load_plugins() -> None:
    """Import them, once."""
    from importlib.metadata import entry_points

    modules = {
        name.strip(): "REGARD_PLUGINS" for name in os.environ.get("REGARD_PLUGINS", "").split(",") if name.strip()
    }
    modules |= {entry.module: f"the entry point '{entry.name}'" for entry in entry_points(group="regard.plugins")}
    for module, by in modules.items():
        try:
            import_module(module)
        except Exception as error:  # whatever someone's module may do
            why = f"{type(error).__name__}: {error}"
            raise RegardError(f"the module '{module}', named by {by}, cannot be imported: {why}") from error
