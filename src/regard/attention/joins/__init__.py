"""Joins: the outputs of all heads to tokens. The table of contents.

    concat            out = [head_1 ... head_H] W_o
    simple_routing    out = [whole_1 ... whole_S], each a mean of votes of the heads, weighted by how well they agree
    em_routing        the same, with wholes as Gaussians and weights by expectation and maximisation

A join is chosen in the spec of multi-head attention: ``attention="multihead(join='simple_routing')"``.
"""

from __future__ import annotations

from regard.core.spec import Registry

JOINS: Registry = {
    "concat": ("regard.attention.joins.concat", "OutputProjection"),
    "simple_routing": ("regard.attention.joins.routing", "SimpleRouting"),
    "em_routing": ("regard.attention.joins.routing", "EMRouting"),
}
