"""Losses of every method, as pure functions of tensors and plain numbers.

One file per family. All are evaluated in float32 under autocast and for half-precision inputs; float64 stays float64.
"""

from __future__ import annotations

from rcil.losses.completed import (
    UNNAMED,
    certain_labels,
    completed_cross_entropy,
    reliability,
    taught_cross_entropy,
)
from rcil.losses.distill import encoder_mse, knowledge_distillation
from rcil.losses.icarl import binary_cross_entropy, sigmoid_distillation, sigmoid_step
from rcil.losses.maps import fold_new_channels
from rcil.losses.pcd import (
    PCD_FACTORS,
    WINDOWS,
    Padding,
    PcdFactors,
    channel_distance,
    pcd_official,
    pcd_paper,
    spatial_distance,
)
from rcil.losses.pod import local_pod_embedding
from rcil.losses.pooling import PoolKind, map_distances, pcd_maps
from rcil.losses.pseudo import Convention, EntropyHistogram, normalised_entropy, pseudo_labels
from rcil.losses.reduce import Reduction
from rcil.losses.sdr import (
    attraction,
    class_means,
    complete_background,
    prototype_matching,
    repulsion,
    resize_labels,
    sparsity,
    update_prototypes,
)
from rcil.losses.unbiased import unbiased_cross_entropy, unbiased_distillation

__all__ = [
    "PCD_FACTORS",
    "UNNAMED",
    "WINDOWS",
    "Convention",
    "EntropyHistogram",
    "Padding",
    "PcdFactors",
    "PoolKind",
    "Reduction",
    "attraction",
    "binary_cross_entropy",
    "certain_labels",
    "channel_distance",
    "class_means",
    "complete_background",
    "completed_cross_entropy",
    "encoder_mse",
    "fold_new_channels",
    "knowledge_distillation",
    "local_pod_embedding",
    "map_distances",
    "normalised_entropy",
    "pcd_maps",
    "pcd_official",
    "pcd_paper",
    "prototype_matching",
    "pseudo_labels",
    "reliability",
    "repulsion",
    "resize_labels",
    "sigmoid_distillation",
    "sigmoid_step",
    "sparsity",
    "spatial_distance",
    "taught_cross_entropy",
    "unbiased_cross_entropy",
    "unbiased_distillation",
    "update_prototypes",
]
