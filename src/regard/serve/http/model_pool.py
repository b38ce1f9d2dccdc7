"""Models by name, each loaded once, with a thread of its own that alone computes with it.

    pool = ModelPool(["en-de", "shakespeare", "mine=runs/small"])
    pool.get("en-de")                                  # the predictor
    await pool.run("en-de", lambda translate: ...)     # run a function alone, on the model's own thread
    pool.batcher("en-de").ask(...)                     # run a function together with other requests (serve.batching)

A folder is served under its last name; `name=folder` gives it another name. Clients never see the paths of folders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.api import predictor_class
from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.serve.http.batching import MAX_GENERATORS, Batcher
from regard.serve.http.metrics import Metrics
from regard.serve.http.prepare import load_predictor, prepare_predictor
from regard.tasks.predictor import Predictor


@dataclass(eq=False)
class _PooledModel:
    """A model: where it is loaded from, its queue and, once loaded, its predictor."""

    source: str
    batcher: Batcher
    predictor: Any = None
    loading: threading.Lock = field(default_factory=threading.Lock)


class ModelPool:
    """The models of a service. With `optimise`, weights are packed: faster, but without gradients for the explorer."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        device: str = "auto",
        optimise: bool = False,
        int8: bool = False,
        max_queue_size: int = 256,
        max_batch_size: int = 64,
        wait: float = 0.005,
    ) -> None:
        if not names:
            raise BadInput("No model to serve; give the name of a model (regard list zoo) or a folder.")
        self.device, self.optimise, self.int8 = device, optimise, int8
        self.metrics = Metrics()
        self.closing = False
        self._models: dict[str, _PooledModel] = {}
        for given in names:
            name, source = parse_model_argument(given)
            if name in self._models:
                raise BadInput(f"Two models are called '{name}'; give one of them another name: other={source}")
            batcher = Batcher(max_queue_size, max_batch_size, wait, on_batch=self.metrics.group(name), name=name)
            self._models[name] = _PooledModel(source, batcher)
        self.metrics.gauge("regard_queued_requests", "Requests that wait for a model.", "model", self._waiting)

    def names(self) -> list[str]:
        """Return the names of the models."""
        return list(self._models)

    def predictor_class(self, name: str) -> type[Predictor] | None:
        """Return the class of a model's predictor without loading it; None where only loading tells."""
        return predictor_class(self._model(name).source)

    @property
    def loaded(self) -> bool:
        """Whether all models are loaded."""
        return all(model.predictor is not None for model in self._models.values())

    def load(self) -> None:
        """Load all models."""
        for name in self._models:
            self.get(name)

    def get(self, name: str) -> Any:
        """Return the predictor of a model, which is loaded at the first call."""
        model = self._model(name)
        with model.loading:
            if model.predictor is None:
                model.predictor = self._load(model)
            return model.predictor

    def task(self, name: str) -> str:
        """Return the name of a model's task."""
        return task_name(self.get(name))

    def source(self, name: str) -> str:
        """Return the name or folder that a model is loaded from."""
        return self._model(name).source

    def pick(
        self,
        name: str | None,
        can: Callable[[Any], bool],
        what: str,
        prefer: Callable[[Any], bool] = lambda predictor: True,
    ) -> str:
        """Return `name` if its predictor can do what is asked, or else the first model that can; of several that can,
        the first that is preferred."""
        if name is not None:
            if can(self.get(name)):
                return name
            raise Unsupported(f"Model '{name}' cannot {what}; its task is {self.task(name)}.")
        able = [each for each in self._models if can(self.get(each))]
        if not able:
            raise Unsupported(f"No model of this service can {what}; its models are {', '.join(self._models)}.")
        return next((each for each in able if prefer(self.get(each))), able[0])

    def batcher(self, name: str) -> Batcher:
        """Return the queue of a model."""
        return self._model(name).batcher

    async def run(self, name: str, work: Callable[[Any], Any], seconds: float = 30.0) -> Any:
        """Return what a function of the predictor returns, run alone on the model's own thread."""
        (found,) = await self.batcher(name).ask(object(), [None], lambda _: [work(self.get(name))], seconds)
        return found

    def stop(self) -> None:
        """Accept no more requests."""
        self.closing = True

    def close(self, timeout: float = 10.0) -> None:
        """Accept no more requests, and finish those that wait."""
        self.stop()
        for model in self._models.values():
            model.batcher.close(timeout)

    def _model(self, name: str) -> _PooledModel:
        if name not in self._models:
            raise UnknownName(
                f"No model of this service is called '{name:.60}'; {did_you_mean(name[:60], self._models)}"
            )
        return self._models[name]

    def _load(self, model: _PooledModel) -> Any:
        found = load_predictor(model.source)
        if not isinstance(found, Predictor):
            kind = type(found).__name__
            raise BadInput(f"{model.source} is a {kind} without a task or a vocabulary; it cannot be served.")
        if not self.optimise and not self.int8:
            found = _to_device(found, self.device)
        else:
            found = prepare_predictor(found, self.device, self.int8)
        # a captured CUDA graph writes into the tensors that it was captured with, so texts cannot take turns there
        is_cuda = next(found.model.parameters()).device.type == "cuda"
        model.batcher.max_generators = 1 if is_cuda else MAX_GENERATORS
        return found

    def _waiting(self) -> dict[str, float]:
        return {name: model.batcher.waiting for name, model in self._models.items()}


def task_name(predictor: Any) -> str:
    """Return the task of a predictor; for a class that is not registered, the name of the class."""
    from regard import tasks

    return tasks.task_name(predictor) or type(predictor).__name__.lower()


def _to_device(predictor: Any, device: str) -> Any:
    """Move a predictor's model to a device in float32, in a form that can be inspected and changed."""
    from regard.runtime.hardware import choose_threads
    from regard.training.device import select_device

    place = select_device(device)
    predictor.model.to(place).float().eval()
    if place.type == "cpu":
        choose_threads()
    return predictor


def parse_model_argument(given: str) -> tuple[str, str]:
    """Return the name under which a model is served and the name or folder it is loaded from."""
    name, equals, source = given.partition("=")
    if equals and name and source and "/" not in name:
        return name, source
    folder = Path(given)
    last = folder.resolve().name if len(folder.parts) != 1 or folder.is_dir() else given
    return (folder.resolve().parent.name if last == "model" else last), given
