"""Who looks at whom: masks, mechanisms, aligners, mixers, and a way to watch them.

| file | what |
|---|---|
| mask | who may look at whom, as a formula |
| protocol | Aligner, Mechanism, Mixer |
| multihead | project, attend, join |
| cache | what decoding remembers |
| capture | `watch`: the maps, beside the fast kernels |
"""

from __future__ import annotations

from regard.attention.aligners import ALIGNERS
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mixers import MIXERS

__all__ = ["ALIGNERS", "MECHANISMS", "MIXERS"]
