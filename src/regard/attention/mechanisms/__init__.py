"""Mechanisms: queries, keys and values to mixed values. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

MECHANISMS: Registry = {
    "softmax": ("regard.attention.mechanisms.softmax", "SoftmaxAttention"),
    # sparse by position
    # sparse by content
    "routing": ("regard.attention.mechanisms.routing", "RoutingAttention"),
    "reformer": ("regard.attention.mechanisms.reformer", "ReformerAttention"),
    # linearised
    "linear": ("regard.attention.mechanisms.linear", "LinearAttention"),
    "performer": ("regard.attention.mechanisms.performer", "PerformerAttention"),
    "rfa": ("regard.attention.mechanisms.rfa", "RandomFeatureAttention"),
    "gated_rfa": ("regard.attention.mechanisms.rfa", "GatedRandomFeatureAttention"),
    "dpfp": ("regard.attention.mechanisms.dpfp", "DPFPAttention"),
    "delta": ("regard.attention.mechanisms.delta", "DeltaRuleAttention"),
    # fewer queries or keys
    "clustered": ("regard.attention.mechanisms.clustered", "ClusteredAttention"),
    "improved_clustered": ("regard.attention.mechanisms.improved_clustered", "ImprovedClusteredAttention"),
    "informer": ("regard.attention.mechanisms.informer", "InformerAttention"),
    "linformer": ("regard.attention.mechanisms.linformer", "LinformerAttention"),
    # low rank
    "csalr": ("regard.attention.mechanisms.csalr", "CSALRAttention"),
    "nystrom": ("regard.attention.mechanisms.nystrom", "NystromAttention"),
    # with a prior
    "realformer": ("regard.attention.mechanisms.realformer", "RealFormerAttention"),
    # heads
}
