"""Pydantic models that several routes share. Requests to run a model are described by its predictor instead."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.serve.http.errors import ApiError


class BaseRequest(BaseModel):
    """A request without unknown fields; numbers must be finite and are not read from strings."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Status(BaseModel):
    """State of the service."""

    status: str


class ModelCard(BaseModel):
    """A model as OpenAI lists it, with its task."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "regard"
    task: str


class ModelList(BaseModel):
    """The models of this service."""

    object: str = "list"
    data: list[ModelCard]


def parse_request(kind: type[BaseModel], values: Any) -> Any:
    """Return a request of a pydantic type made from JSON values; raise `ApiError` with the first invalid field."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ApiError(422, f"{where}: {first['msg']}" if where else first["msg"], where[:120] or None) from None
