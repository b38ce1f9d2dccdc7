"""Models over HTTP (`http`) and the explorer's server side and page (`explorer`).

    http.routes        routes made from the predictors' declarations
    http.jobs          runs predictors within the limits of the service
    http.batching      requests that run together
    http.model_pool    models by name, each with its thread
    http.middleware    hosts, origins, tokens, sizes of bodies, disconnects
    http.server        sockets, slow clients, shutdown

Nothing here is imported by ``import regard``, which does not need FastAPI.
"""

from regard.core.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {})
