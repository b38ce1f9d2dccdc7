"""Mechanisms: queries, keys and values to mixed values. The table of contents."""

from __future__ import annotations

from regard.core.spec import Registry

MECHANISMS: Registry = {
    "softmax": ("regard.attention.mechanisms.softmax", "SoftmaxAttention"),
    # sparse by position
    "window": ("regard.attention.mechanisms.window", "SlidingWindowAttention"),
    "etc": ("regard.attention.mechanisms.etc", "ETCAttention"),
    "local_blocks": ("regard.attention.mechanisms.local_blocks", "LocalBlockAttention"),
    "bigbird": ("regard.attention.mechanisms.bigbird", "BigBirdAttention"),
    "sparse_strided": ("regard.attention.mechanisms.sparse_strided", "SparseStridedAttention"),
    "sparse_fixed": ("regard.attention.mechanisms.sparse_fixed", "SparseFixedAttention"),
    "image_local_1d": ("regard.attention.mechanisms.image_local_1d", "ImageLocal1DAttention"),
    "image_local_2d": ("regard.attention.mechanisms.image_local_2d", "ImageLocal2DAttention"),
    "axial": ("regard.attention.mechanisms.axial", "AxialAttention"),
    # sparse by content
    "sinkhorn": ("regard.attention.mechanisms.sinkhorn", "SinkhornAttention"),
    "sortcut": ("regard.attention.mechanisms.sortcut", "SortCutAttention"),
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
    "low_rank_local": ("regard.attention.mechanisms.low_rank_local", "LowRankLocalAttention"),
    "nystrom": ("regard.attention.mechanisms.nystrom", "NystromAttention"),
    # with a prior
    "localness": ("regard.attention.mechanisms.localness", "LocalnessAttention"),
    "gaussian": ("regard.attention.mechanisms.gaussian", "GaussianAttention"),
    "evolving": ("regard.attention.mechanisms.evolving", "EvolvingAttention"),
    "realformer": ("regard.attention.mechanisms.realformer", "RealFormerAttention"),
    "lazyformer": ("regard.attention.mechanisms.lazyformer", "LazyFormerAttention"),
    "camtl": ("regard.attention.mechanisms.camtl", "ConditionalAttention"),
    "hard_coded_gaussian": ("regard.attention.mechanisms.hard_coded_gaussian", "HardCodedGaussianAttention"),
    "synthesizer_dense": ("regard.attention.mechanisms.synthesizer", "DenseSynthesizer"),
    "synthesizer_factorised_dense": ("regard.attention.mechanisms.synthesizer", "FactorisedDenseSynthesizer"),
    "synthesizer_random": ("regard.attention.mechanisms.synthesizer", "RandomSynthesizer"),
    "synthesizer_factorised_random": ("regard.attention.mechanisms.synthesizer", "FactorisedRandomSynthesizer"),
    # heads
    "per_head": ("regard.attention.mechanisms.per_head", "PerHeadAttention"),
    "talking_heads": ("regard.attention.mechanisms.talking_heads", "TalkingHeadsAttention"),
    "multi_scale": ("regard.attention.mechanisms.multi_scale", "MultiScaleAttention"),
    "adaptive_span": ("regard.attention.mechanisms.adaptive_span", "AdaptiveSpanAttention"),
    "disagreement": ("regard.attention.mechanisms.disagreement", "DisagreementAttention"),
    "pattern_guidance": ("regard.attention.mechanisms.pattern_guidance", "PatternGuidedAttention"),
}
