"""The description of a network, which is stored in file headers and is enough to rebuild the network.

No torch here: `rcil info` and serving read architectures without it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

LiteBackbone = Literal["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
Backbone = Literal["resnet18", "resnet34", "resnet50", "resnet101"] | LiteBackbone
Head = Literal["deeplabv3", "deeplabv3plus"]
NormKind = Literal["batch", "abs", "inplace"]
BranchForm = Literal["norm", "merged"]
MixKind = Literal["drop_path", "fixed", "learnable"]
DropChance = Annotated[float, Field(gt=0, le=0.5)]
BranchWeight = Annotated[float, Field(ge=0, le=1)]
Stage = Literal["stage1", "stage2", "stage3", "stage4", "head"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Channels = Annotated[int, Field(ge=1, le=8192)]
"""The limit keeps a damaged file from allocating all memory."""
Depth = Annotated[int, Field(ge=1, le=1000)]

RESNET_BLOCKS: dict[str, tuple[int, int, int, int]] = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
}
BOTTLENECK = ("resnet50", "resnet101")


class FrozenModel(BaseModel):
    """Base class of immutable models that reject unknown keys and take field descriptions from docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _in_order(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Each stage once, from the input to the output."""
    return tuple(stage for stage in STAGES if stage in stages)


Stages = Annotated[tuple[Stage, ...], Field(min_length=1), AfterValidator(_in_order)]
"""Parts of a network."""


class RC(FrozenModel):
    """Where the RC blocks are, how their two branches are mixed, and in which state they are."""

    mix: MixKind = "drop_path"
    """Branch weights: random per channel during training, one fixed weight, or a learned weight per channel."""
    drop: DropChance = 1 / 3
    """Drop-path: the probability that a channel uses only the old branch, and also that it uses only the new branch."""
    old_weight: BranchWeight = 0.5
    """Fixed mix: the weight of the old branch; the new branch has the rest."""
    old: BranchForm = "norm"
    """`norm`: conv + norm; `merged`: one conv with bias, the sum of both branches of the step before."""
    new: BranchForm = "norm"
    """`merged`: one conv with bias, which a step started from the merged conv or by absorbing the norm."""
    frozen: bool = False
    """Whether the old branch takes no gradient and stays in evaluation mode."""
    norm_after: bool = False
    """Whether one norm follows the sum of both branches. The branches then have no norms; their forms only tell what
    they are copies of."""
    stages: Stages = STAGES
    """The stages that have RC blocks; the others have one branch, which is trained as in a plain network."""

    @model_serializer(mode="wrap")
    def _without_later_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out fields that earlier files do not have if they are at their defaults."""
        document: dict[str, Any] = dump(self)
        if not self.norm_after:
            document.pop("norm_after", None)
        if self.stages == STAGES:
            document.pop("stages", None)
        return document


class NetworkShape(FrozenModel):
    """The choices that a task file makes about its network."""

    backbone: Backbone = "resnet101"
    blocks: tuple[Depth, Depth, Depth, Depth] | None = None
    """Residual blocks of the four stages of a ResNet; None: those of the backbone's name."""
    width: Channels = 64
    """Channels of the stem of a ResNet; the channels of every stage are a multiple."""
    head: Head = "deeplabv3"
    """`deeplabv3`: the paper's head, with logits at the output stride. `deeplabv3plus`: its map is refined together
    with the backbone's map at stride 4, so that masks have sharper edges and thin objects survive."""
    head_width: Channels = 256
    """Channels of each ASPP path and of the decoder."""
    skip_width: Channels = 48
    """Channels that `deeplabv3plus` takes from the map at stride 4."""
    output_stride: Literal[8, 16, 32] = 16
    """Input pixels per cell of the last map; 32 is for classifiers."""
    norm: NormKind = "batch"
    """`batch`: BatchNorm. `inplace`: inplace-ABN, scale |gamma| + eps. `abs`: the same arithmetic in plain torch."""


class Architecture(NetworkShape):
    """A DeepLab segmenter up to its class rows."""

    slope: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Negative slope of the leaky ReLU; 0 is a ReLU."""
    stem_activation: bool = True
    """Whether an activation follows the stem; in the official RCIL checkpoints none does."""
    pool_window: Annotated[int, Field(ge=1)] | None = None
    """Evaluation-time window of the pooled ASPP path (official: 32); None pools globally."""
    rc: RC | None = RC()
    """The RC blocks; None for a plain network with one branch."""
    folded: bool = False
    """Whether this is the deployed form, in which norms are absorbed and every RC block is a single conv."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.lite and (self.blocks is not None or self.width != 64):
            raise ValueError(f"blocks and width describe ResNets; {self.backbone} has one size")
        if self.norm == "inplace" and self.slope == 0:
            raise ValueError("norm 'inplace' inverts its activation, which a slope of 0 does not allow; use norm 'abs'")
        if self.folded and self.rc is not None:
            raise ValueError("a folded network has no RC blocks: rc must be null")
        return self

    @property
    def lite(self) -> bool:
        """Whether the backbone is an EfficientNet-lite."""
        return self.backbone.startswith("efficientnet_lite")

    @property
    def bottleneck(self) -> bool:
        """Whether the residual blocks are bottlenecks rather than basic blocks."""
        return self.backbone in BOTTLENECK

    @property
    def stage_blocks(self) -> tuple[int, int, int, int]:
        """Residual blocks of the four stages of a ResNet."""
        return self.blocks or RESNET_BLOCKS[self.backbone]

    def replace(self, **changes: object) -> Architecture:
        """Return a validated copy with some fields changed."""
        return Architecture.model_validate({**self.model_dump(), **changes})
