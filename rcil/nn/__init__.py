"""Networks: RC blocks, backbones, DeepLab-v3, the step transition, folding and unfolding."""

from rcil.nn.build import build, plain_twin
from rcil.nn.cost import Cost, cost
from rcil.nn.fold import FoldReport, fold
from rcil.nn.network import Maps, Network
from rcil.nn.segmenter import Segmenter
from rcil.nn.step import begin_step
from rcil.nn.unfold import unfold
from rcil.nn.units.rc import RCConv
from rcil.nn.units.sync import synchronise_norms

__all__ = [
    "Cost",
    "FoldReport",
    "Maps",
    "Network",
    "RCConv",
    "Segmenter",
    "begin_step",
    "build",
    "cost",
    "fold",
    "plain_twin",
    "synchronise_norms",
    "unfold",
]
