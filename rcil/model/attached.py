"""The description of a network of another library: how to build it, and where its branches, rows and maps are.

No torch here, and nothing is imported or built: a file with this description can be shown and checked without running
code. `rcil.nn.attached.builders` builds the module, from packages that the user allows only.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rcil.model.architecture import RC, FrozenModel
from rcil.model.foreign import ForeignArchitecture

FACTORY = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
MAX_ARGS = 100_000
"""Longest JSON of the arguments, in characters."""


def _plain(args: dict[str, Any]) -> dict[str, Any]:
    """Raise a ValueError for arguments that JSON does not keep as they are."""
    try:
        text = json.dumps(args, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"arguments must be numbers, texts, lists and dictionaries: {error}") from error
    if len(text) > MAX_ARGS:
        raise ValueError(f"arguments of {len(text):,} characters are too long")
    plain: dict[str, Any] = json.loads(text)
    return plain


Factory = Annotated[str, Field(pattern=FACTORY, max_length=300)]
"""`package.module:name`, the import path of a class or function that returns a torch module."""
Args = Annotated[dict[str, Any], AfterValidator(_plain)]
"""Keyword arguments. A dictionary with the keys `factory` and `args` is built first, for example a configuration."""
Name = Annotated[str, Field(max_length=1000)]
"""Name of a module, as in `named_modules`."""


class Unit(FrozenModel):
    """A conv of the network and the norm that reads it."""

    conv: Name
    norm: Name | None = None
    """A batch norm that is the only reader of the conv; None if there is none, or if it cannot be folded."""
    rc: bool = False
    """Whether the conv gets a second branch."""


class AttachedArchitecture(ForeignArchitecture):
    """A network of another library, up to its class rows."""

    factory: Factory
    args: Args = Field(default_factory=dict)
    """Arguments of the factory, as given when the network was attached, with the number of classes of that time."""
    units: tuple[Unit, ...]
    """All convs with a norm, and those without one that get a second branch, in the order of execution."""
    classifier: Annotated[tuple[Name, ...], Field(min_length=1)]
    """The conv whose output becomes the logits; several if their outputs are added."""
    scales: tuple[float, ...] = ()
    """The factor of each of these convs in the logits; none if all are 1."""
    auxiliary: tuple[Name, ...] = ()
    """Layers that also have one row per class, of auxiliary heads. They grow, and are trained only if the logits depend
    on them."""
    maps: tuple[Name, ...] = ()
    """Modules whose outputs are distilled: the ends of up to four stages."""
    early: tuple[tuple[Name, ...], ...] = ()
    """For each of the maps, the modules that run between the map before and this one."""
    unused: tuple[Name, ...] = ()
    """Parameters that the logits do not depend on; they are not trained."""
    output: str | int | None = None
    """Key or index of the logits in the output of the network; None: the output itself."""
    training_output: str | int | None = None
    """The same in training mode; None if it is the same there."""
    classes_arg: tuple[str, ...] | None = None
    """Where the arguments state the number of classes, by keys and by indices of lists; None if no argument does."""
    multiple: Annotated[int, Field(ge=1, le=1024)] = 1
    """Height and width of the input must be multiples of this; other images are padded below and on the right."""
    rc: RC | None = None
    """The RC blocks; None for the network as it was attached."""
    folded: bool = False
    """Whether this is the deployed form, in which norms are absorbed and every RC block is a single conv."""

    @property
    def backbone(self) -> str:
        """The name of the network, for people."""
        own = self.factory.partition(":")[2]
        encoder = next((self.args[key] for key in ("encoder_name", "backbone") if key in self.args), None)
        return f"{own} ({encoder})" if isinstance(encoder, str) else own

    @property
    def package(self) -> str:
        """The package that the factory belongs to, which must be allowed before the network can be built."""
        return self.factory.partition(":")[0].partition(".")[0]

    @property
    def output_stride(self) -> int:
        """An upper limit, for choosing sizes to check."""
        return max(32, self.multiple)

    def replace(self, **changes: object) -> AttachedArchitecture:
        """Return a validated copy with some fields changed; norms are batch norms anyway."""
        changes.pop("norm", None)
        return AttachedArchitecture.model_validate({**self.model_dump(), **changes})
