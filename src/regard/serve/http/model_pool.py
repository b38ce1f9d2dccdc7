"""Models by name, each loaded once, made ready, with a thread of its own that alone computes with it.

    host = ModelPool(["en-de", "shakespeare", "mine=runs/small"])
    host.get("en-de")                                  # the predictor
    await host.run("en-de", lambda translate: ...)     # something that is to be done alone, on the model's own thread
    host.batcher("en-de").ask(...)                     # something that may be done with others (serve.batching)

A folder is served under its last name; `name=folder` gives it another. Nobody outside hears of folders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.serve.http.batching import MAX_GENERATORS, Batcher
from regard.serve.http.metrics import Metrics
from regard.serve.http.prepare import load_predictor, prepare_predictor


@dataclass(eq=False)
class _PooledModel:
    """One model: where it comes from and, once it is loaded, what it is."""

    source: str
    batcher: Batcher
    predictor: Any = None
    loading: threading.Lock = field(default_factory=threading.Lock)


class ModelPool:
    """The models of a service. `packed` ones are faster and cannot be looked into by gradients."""

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
            raise BadInput("there is nothing to serve: name a model (regard list zoo) or a folder")
        self.device, self.optimise, self.int8 = device, optimise, int8
        self.metrics = Metrics()
        self.closing = False
        self._models: dict[str, _PooledModel] = {}
        for given in names:
            name, source = parse_model_argument(given)
            if name in self._models:
                raise BadInput(f"two models are called '{name}'; give one another name: other={source}")
            batcher = Batcher(max_queue_size, max_batch_size, wait, on_batch=self.metrics.group(name), name=name)
            self._models[name] = _PooledModel(source, batcher)
        self.metrics.gauge("regard_queued_requests", "Requests that wait for a model.", "model", self._waiting)

    def names(self) -> list[str]:
        """What the models are called."""
        return list(self._models)

    def source(self, name: str) -> str:
        """Return the name or folder that a model is loaded from."""
        return self._model(name).source

    @property
    def loaded(self) -> bool:
        """Whether all of them are there."""
        return all(model.predictor is not None for model in self._models.values())

    def load(self) -> None:
        """Load all."""
        for name in self._models:
            self.get(name)

    def get(self, name: str) -> Any:
        """The predictor of a name, loaded where it is asked for the first time."""
        model = self._model(name)
        with model.loading:
            if model.predictor is None:
                model.predictor = self._ready(model)
            return model.predictor

    def task(self, name: str) -> str:
        """What a model is for: the name of its task."""
        return task_name(self.get(name))

    def pick(self, name: str | None, able: Callable[[Any], bool], does: str) -> str:
        """The model that is asked for, or the first that can do what is asked of it."""
        if name is not None:
            if able(self.get(name)):
                return name
            raise Unsupported(f"the model '{name}' does not {does}: it is for {self.task(name)}")
        for each in self._models:
            if able(self.get(each)):
                return each
        raise Unsupported(f"none of the models here can {does}; there is: {', '.join(self._models)}")

    def batcher(self, name: str) -> Batcher:
        """The queue of a model."""
        return self._model(name).batcher

    def lock(self, name: str) -> threading.RLock:
        """Held while a model computes."""
        return self._model(name).batcher.lock

    async def run(self, name: str, work: Callable[[Any], Any], seconds: float = 30.0) -> Any:
        """Something done with a model alone, in its turn and on its own thread."""
        (found,) = await self.batcher(name).ask(object(), [None], lambda _: [work(self.get(name))], seconds)
        return found

    def stop(self) -> None:
        """Take no more requests."""
        self.closing = True

    def close(self, grace: float = 10.0) -> None:
        """Stop, and finish what waits."""
        self.stop()
        for model in self._models.values():
            model.batcher.close(grace)

    def _model(self, name: str) -> _PooledModel:
        if name not in self._models:
            raise UnknownName(f"no model here is called '{name:.60}'; {did_you_mean(name[:60], self._models)}")
        return self._models[name]

    def _ready(self, model: _PooledModel) -> Any:
        found = load_predictor(model.source)
        if not hasattr(found, "model"):
            raise BadInput(f"{model.source} is a bare {type(found).__name__}: it has no task, or no vocabulary")
        if not self.optimise and not self.int8:
            found = _to_device(found, self.device)
        else:
            found = prepare_predictor(found, self.device, self.int8)
        if next(found.model.parameters()).device.type == "cuda":
            model.batcher.max_generators = 1  # a recorded step writes into the tensors it was recorded with
        else:
            model.batcher.max_generators = MAX_GENERATORS
        return found

    def _waiting(self) -> dict[str, float]:
        return {name: model.batcher.waiting for name, model in self._models.items()}


def task_name(predictor: Any) -> str:
    """Return the task of a predictor; for a class that is not registered, the name of the class."""
    from regard import tasks

    return tasks.task_name(predictor) or type(predictor).__name__.lower()


def _to_device(predictor: Any, device: str) -> Any:
    """As it was loaded, where it is to compute: it can be looked into and changed."""
    from regard.runtime.hardware import choose_threads
    from regard.training.device import select_device

    place = select_device(device)
    predictor.model.to(place).float().eval()
    if place.type == "cpu":
        choose_threads()
    return predictor


def parse_model_argument(given: str) -> tuple[str, str]:
    """What a model is called and where it comes from."""
    name, equals, source = given.partition("=")
    if equals and name and source and "/" not in name:
        return name, source
    folder = Path(given)
    last = folder.resolve().name if len(folder.parts) != 1 or folder.is_dir() else given
    return (folder.resolve().parent.name if last == "model" else last), given
