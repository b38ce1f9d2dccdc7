"""Estimate what a model costs before it is trained: parameters, multiply-adds, memory, communication, time.

    meta_model        build a model, its inputs and its loss on fake tensors, which have shapes but no data
    meter, op_log     count every operation, and log which tensors are alive when
    kernels           replace operations by the fused kernels that a GPU runs
    extrapolate       run four of a stack of equal blocks and count all of them
    tensor_parallel   a model as one of several devices sees it
    passes            one update, one forward pass or one decoding step of one device
    devices           peak speeds, and the share of them that is expected
    estimate          memory, communication and time on one device or many
    lectures          the arithmetic of the lectures
    report            tables and JSON

``regard cost MODEL`` is the command; docs/scaling.md plans large runs with it.
"""

from regard.core.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {})
