"""Interventions over HTTP: the original and the changed output.

    POST /explore/interventions      {"inspection": ID, "interventions": [...]}            of an input that was read
                                     {"model", "inputs": {"text"}, "interventions": [...]}  of any other

The changed maps are a look of their own: POST /explore/inspections with the same interventions.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from regard.core.errors import BadInput
from regard.core.spec import check_untrusted
from regard.serve.explorer.cache import InspectionCache
from regard.serve.http.jobs import Jobs
from regard.serve.http.schemas import BaseRequest

Number = Annotated[int, Field(ge=0, lt=2**31)]


class InterventionSpec(BaseRequest):
    """One intervention: which maps (a pattern of names), which of their heads (none: all), and what is done to them."""

    do: Annotated[str, Field(max_length=20, description="off, uniform, identity, previous, mask, mechanism, positions")]
    map: Annotated[str, Field(max_length=200)] = "*"
    heads: Annotated[list[Number] | None, Field(max_length=4096)] = None
    mask: Annotated[
        list[Annotated[list[Number | None], Field(min_length=2, max_length=2)]] | None,
        Field(max_length=65_536, description="Pairs [query, key] that are ruled out; null is every query."),
    ] = None
    spec: Annotated[str, Field(max_length=200, description="Of a mechanism or positions to put in.")] = ""


class CompareRequest(BaseRequest):
    """An input (of a stored inspection, or a text for a model) and the interventions."""

    interventions: Annotated[list[InterventionSpec], Field(min_length=1, max_length=64)]
    inspection: Annotated[str | None, Field(max_length=64)] = None
    model: Annotated[str | None, Field(max_length=200)] = None
    inputs: Annotated[dict[str, str | int], Field(max_length=8, default_factory=dict)]


def routes(jobs: Jobs, inspections: InspectionCache) -> APIRouter:
    """The one route."""
    router = APIRouter(prefix="/explore", tags=["explorer"])

    @router.post("/interventions")
    async def compare(asked: CompareRequest) -> dict[str, Any]:
        """Both outputs, and how likely the original one is under each: tokens, log-probabilities, loss."""
        from regard.interpret.compare import compare_outputs

        name, inputs = await _input(asked, jobs, inspections)
        for change in asked.interventions:
            if change.spec:
                check_untrusted(change.spec)
        changes = [change.model_dump(exclude_none=True) for change in asked.interventions]
        await asyncio.to_thread(jobs.pool.get, name)
        found: dict[str, Any] = await jobs.pool.run(
            name, lambda predictor: compare_outputs(predictor, inputs, changes), jobs.settings.timeout
        )
        return found | {"model": name}

    return router


async def _input(asked: CompareRequest, jobs: Jobs, inspections: InspectionCache) -> tuple[str, dict[str, Any]]:
    """Return the model and its inputs."""
    if asked.inspection is not None:
        look = inspections.get(asked.inspection)
        return look.model, look.inputs
    if asked.model is None:
        raise BadInput("give an inspection, or a model and its inputs")
    await jobs.check_texts(asked.model, [value for value in asked.inputs.values() if isinstance(value, str)])
    return asked.model, asked.inputs
