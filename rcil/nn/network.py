"""What methods, the training loop, folding and checkpoints know about a network: this class and nothing else.

`Segmenter` is our own DeepLab. `AttachedNetwork` is a network of another library whose convs got branches. Both have
RC blocks (`RCConv`) and conv+norm units (`ConvNorm`) inside, so that merging, folding, fusing and unfolding walk over
the same modules in both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, overload

from torch import Tensor, nn

if TYPE_CHECKING:
    from rcil.model.architecture import RC
    from rcil.model.metadata import AnyArchitecture

MapKind = Literal["before", "after"]
RowStart = Literal["background", "balanced", "random"]
Part = Literal["backbone", "head", "classifier"]
ROWS = ("classifier.weight", "classifier.bias")
"""Names of the class rows in a checkpoint of one of our own networks."""


@dataclass(frozen=True)
class Maps:
    """The maps that distillation reads; h, w are the resolution of the classifier's input."""

    stages: tuple[Tensor, ...]
    """Last map of each stage [N, C_i, H_i, W_i], before or after the activation, as requested; our own networks have
    four stages, attached ones up to four, whose maps are those that their modules return."""
    encoder: Tensor
    """The last stage after its activation [N, C, H_4, W_4]."""
    decoder: Tensor
    """Input of the classifier, before or after its activation, as requested [N, D, h, w]."""
    inputs: tuple[Tensor, ...]
    """What the convs of the classifier read [N, D_i, h_i, w_i]; most networks have one such conv."""
    logits_small: Tensor
    """Logits at the resolution at which the network gives them [N, classes, h, w]."""
    logits: Tensor
    """Logits at input size [N, classes, H, W]."""

    def distilled(self) -> list[Tensor]:
        """The maps of the official recipe: the stages, the decoder, the low-resolution logits."""
        return [*self.stages, self.decoder, self.logits_small]


class ClassRows(Protocol):
    """The classifier rows of a network, one per class, and their growth."""

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """Class names of each step."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""

    @property
    def has_bias(self) -> bool:
        """Whether the rows have biases; if not, `rows` returns zeros and `set_rows` ignores its biases."""

    def rows(self) -> tuple[Tensor, Tensor]:
        """All rows as one 1x1 kernel [classes, F, 1, 1] over `features`, and their biases [classes], detached."""

    def set_rows(self, weight: Tensor, bias: Tensor) -> None:
        """Write all rows; shapes as in `rows`."""

    def features(self, inputs: Sequence[Tensor]) -> Tensor:
        """`Maps.inputs` as the map [N, F, h, w] that the rows of `rows` are a 1x1 conv of."""

    def train_rows(self, *, old: bool, new: bool) -> None:
        """Whether rows of earlier steps and of the last step take gradients."""


class Network(nn.Module):
    """A segmentation network with class rows that grow."""

    arch: AnyArchitecture
    """The description from which a checkpoint rebuilds the network."""
    loose_norms: ClassVar[bool] = False
    """Whether there may be norms that follow no conv and stay when the network is folded."""

    @property
    @abstractmethod
    def rows(self) -> ClassRows:
        """The classifier."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names in row order."""
        return self.rows.names

    @overload
    def forward(self, x: Tensor, maps: None = None) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, maps: MapKind) -> Maps: ...

    @abstractmethod
    def forward(self, x: Tensor, maps: MapKind | None = None) -> Tensor | Maps:
        """Segment normalised images.

        Args:
            x: [N, 3, H, W].
            maps: None returns the logits [N, classes, H, W]. `before` (the paper) or `after` (the official code)
                returns `Maps` with the stage and decoder maps before or after their last activation.
        """

    @abstractmethod
    def grow(self, new: Sequence[str], start: RowStart) -> None:
        """Add rows for new classes in place; see `IncrementalClassifier.extended`."""

    @abstractmethod
    def branched(self, rc: RC) -> Network:
        """A copy with two branches, both copies of the original, in every unit that gets RC; see `add_branches`."""

    @abstractmethod
    def with_norms(self) -> Network:
        """A copy of a folded network with norms behind its convs, whose weights are still to be set; see `unfold`."""

    @abstractmethod
    def early(self, count: int) -> list[nn.Module]:
        """The modules up to the end of stage `count`, counted from the input; none for 0."""

    @abstractmethod
    def part_of(self, parameter: str) -> Part:
        """The part of the network that a parameter belongs to."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint stores; class rows are not split by step."""

    @abstractmethod
    def load_tensors(self, tensors: Mapping[str, Tensor], order: Sequence[int]) -> None:
        """Load what `tensors` returned; row i of the classifier is row `order[i]` of the given rows."""
