"""Interventions: change the attention weights of chosen heads while a model runs, and restore it afterwards.

    with intervened(model, [{"map": "decoder.blocks.0.cross", "heads": [3], "do": "off"}]):
        model(source, target)

    off         w = 0                       the head's share of the join is gone
    uniform     w_nm = 1 / count            over what the mask allows
    identity    w_nn = 1                    every token looks at itself
    previous    w_n,n-1 = 1                 at the token before it; the first at itself
    mask        w of the drawn pairs = 0    [[query, key], ...], None for every query; the rest is normalised anew
    mechanism   w of another mechanism      {"do": "mechanism", "spec": "softmax(scale=0.5)"}, on the same q and k
    positions   other positions             {"do": "positions", "spec": "none"}, of all stacks that match

Every mechanism is linear in v, o = w v, so a hook replaces the chosen heads of o by w' v; models need no change. What
`watch` records are the changed maps. A mask is combined with other changes of a head; of those the last one counts.
Unchanged heads are equal to the bit. Aligners of recurrent decoders have one head; their state is not changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import torch
from torch import nn

from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, RegardError, Unsupported, did_you_mean
from regard.interpret.attention_override import AlignerOverride, MechanismOverride, QueryPositions
from regard.interpret.position_override import override_positions

HEAD_ACTIONS = ("off", "uniform", "identity", "previous", "mask", "mechanism")  # what is done to heads
ACTIONS = (*HEAD_ACTIONS, "positions")
MAX_INTERVENTIONS = 64  # interventions at a time
MAX_MASK_PAIRS = 65_536  # drawn pairs of one


@dataclass(frozen=True)
class Intervention:
    """One change: which maps (a pattern of their names), which heads of them (None: all), and what is done."""

    do: str
    map: str = "*"
    heads: tuple[int, ...] | None = None
    mask: tuple[tuple[int | None, int], ...] = ()
    spec: str = ""

    @staticmethod
    def of(given: Intervention | Mapping[str, Any]) -> Intervention:
        """Read the form in which it travels, or say what is wrong with it."""
        if isinstance(given, Intervention):
            return given
        if not isinstance(given, Mapping):
            raise BadInput(f"an intervention is an object with a 'do', not a {type(given).__name__}")
        if odd := given.keys() - {"do", "map", "heads", "mask", "spec"}:
            raise BadInput(f"an intervention has no '{min(map(str, odd))}'; it has do, map, heads, mask and spec")
        do, pattern, spec = given.get("do"), given.get("map") or "*", given.get("spec") or ""
        if not isinstance(do, str) or do not in ACTIONS:
            raise BadInput(f"an intervention cannot do {str(do)!r:.40}; {did_you_mean(str(do), ACTIONS)}")
        if not isinstance(pattern, str) or not isinstance(spec, str):
            raise BadInput("map and spec of an intervention are text")
        made = Intervention(do, pattern, _parse_heads(given.get("heads")), _parse_pairs(given.get("mask")), spec)
        if do == "mask" and not made.mask:
            raise BadInput("a mask needs pairs to rule out: mask=[[query, key], ...]")
        if do != "mask" and made.mask:
            raise BadInput(f"'{do}' takes no drawn pairs; give the mask as an intervention of its own: do='mask'")
        if do in ("mechanism", "positions") and not spec:
            raise BadInput(f"'{do}' needs the spec of what to put in: spec='name' or 'name(key=value)'")
        return made


@contextmanager
def intervene(model: nn.Module, interventions: Sequence[Intervention | Mapping[str, Any]]) -> Iterator[None]:
    """Run the model with these changes inside the block; they are undone afterwards, also after an error."""
    if len(interventions) > MAX_INTERVENTIONS:
        raise BadInput(f"{len(interventions)} interventions at a time are too many; give at most {MAX_INTERVENTIONS}")
    wanted = [Intervention.of(each) for each in interventions]
    if not wanted:
        yield
        return
    inner = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    modules = dict(inner.named_modules())
    with ExitStack() as undo:
        for each in wanted:
            if each.do == "positions":
                override_positions(inner, each.map, each.spec, undo)
        clock, replaced = (
            QueryPositions(),
            _overrides(inner, modules, [each for each in wanted if each.do in HEAD_ACTIONS]),
        )
        for part in replaced:
            part.enter(undo, clock)
        if any(each.mask for each in wanted):
            clock.watch(modules, undo)
        if inner is not model or any(getattr(m, "_compiled_call_impl", None) is not None for m in modules.values()):
            warnings.warn("interventions run the compiled model eagerly: hooks do not fire there", stacklevel=3)
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        yield
        if replaced and not any(part.ran for part in replaced):
            raise RegardError("nothing was changed: the attention that the interventions name did not run")


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model that compute attention, by the names of their maps."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if isinstance(module, Mechanism):
            name, _, last = path.rpartition(".")  # a mechanism is known by the mixer that holds it
            found[name if last == "attend" else path] = module
        elif callable(getattr(module, "weights", None)) and callable(getattr(module, "keys", None)):
            found[path] = module
    return found


def _overrides(
    model: nn.Module, modules: Mapping[str, nn.Module], wanted: Sequence[Intervention]
) -> list[MechanismOverride | AlignerOverride]:
    """Return the overrides: every module that computes attention, with its interventions."""
    known = attention_modules(model)
    if wanted and not known:
        raise Unsupported(f"nothing attends in this {type(model).__name__}, so there is no attention to change")
    for each in wanted:
        if not any(fnmatch(name, each.map) for name in known):
            raise BadInput(f"nothing that attends matches '{each.map:.80}'; {did_you_mean(each.map, known)}")
    found: list[MechanismOverride | AlignerOverride] = []
    for name, module in known.items():
        if own := [each for each in wanted if fnmatch(name, each.map)]:
            if isinstance(module, Mechanism):
                found.append(MechanismOverride(name, module, modules.get(name), own))
            else:
                found.append(AlignerOverride(name, module, own))
    return found


def _parse_heads(given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    if not isinstance(given, Sequence) or isinstance(given, str) or not all(_is_index(head) for head in given):
        raise BadInput("heads of an intervention are a list of numbers, counted from 0; leave them out for all heads")
    if not given:
        raise BadInput("an intervention of no head changes nothing; leave heads out for all of them")
    return tuple(sorted(set(given)))


def _parse_pairs(given: Any) -> tuple[tuple[int | None, int], ...]:
    if given is None:
        return ()
    right = isinstance(given, Sequence) and not isinstance(given, str) and len(given) <= MAX_MASK_PAIRS
    if not right or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in given):
        raise BadInput(f"a drawn mask is a list of at most {MAX_MASK_PAIRS} pairs [query, key]")
    for query, key in given:
        if not ((query is None or _is_index(query)) and _is_index(key)):
            raise BadInput("queries and keys of a drawn mask are numbers counted from 0, or null for every query")
    return tuple((query, key) for query, key in given)


def _is_index(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
