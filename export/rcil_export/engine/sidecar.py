"""The JSON file beside an engine that describes it. Neither torch nor TensorRT is imported: serving reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rcil.core.errors import CheckpointError
from rcil.core.files import sha256_of
from rcil.model.architecture import FrozenModel
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import INSTALL, TITLES, Flavour, FlavourName, installed
from rcil_export.graph.description import read_described
from rcil_export.graph.interface import Precision
from rcil_export.graph.shapes import Extent, InputShape

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
CHANNELS = 3
FileName = Annotated[str, Field(pattern=r"^[^/\\\x00]*[^/\\\x00.][^/\\\x00]*$")]
"""A name without a folder that consists of more than dots."""


def _not_zero(size: int) -> int:
    if size == 0:
        raise ValueError("a side of 0 pixels")
    return size


Size = Annotated[int, Field(ge=-1), AfterValidator(_not_zero)]


class TensorInfo(FrozenModel):
    """One input or output."""

    name: str
    dtype: str
    """As numpy names it."""
    shape: tuple[Size, ...]
    """-1 where the size is open."""


class EngineSidecar(FrozenModel):
    """What an engine contains, what it was built from and where it runs."""

    format_version: Literal[1] = 1
    engine_sha256: Sha256
    onnx_sha256: Sha256
    onnx_file: FileName
    """Name of the ONNX file, without its folder: it computes the same on any machine."""
    flavour: FlavourName
    version: str
    """Version of TensorRT; an engine runs with this version only."""
    gpus: tuple[str, ...]
    """Compute capabilities of the GPUs that it runs on."""
    precision: Precision
    conv_layers: dict[str, int]
    """How many convs compute in each precision, as read from the parsed network."""
    inputs: Annotated[tuple[TensorInfo, ...], Field(min_length=1)]
    """Exactly one, named `image`."""
    outputs: tuple[TensorInfo, ...]
    profile: InputShape | None
    """The sizes it takes, where they are open."""
    metadata: dict[str, str]
    """The ONNX file's own: classes, colours, mean and std, interface."""

    @model_validator(mode="after")
    def _sizes_are_known(self) -> Self:
        """Sizes are open exactly if there is a profile, and the profile fits the sizes that are fixed."""
        shape = self.inputs[0].shape
        if not is_image(shape):
            raise ValueError(f"inputs: {sizes_text(shape)} is not a batch of images")
        if (self.profile is None) is (-1 in shape):
            raise ValueError(f"the profile is {self.profile or 'missing'}, and the input {sizes_text(shape)}")
        if self.profile is not None and not fits_profile(shape, self.profile):
            raise ValueError(f"the profile {self.profile} does not fit the input {sizes_text(shape)}")
        return self


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether this is [N, H, W, 3] or [N, 3, H, W]; -1 is an open size."""
    return len(shape) == 4 and CHANNELS in (shape[1], shape[3])


def axis_ranges(shape: tuple[int, ...], sizes: InputShape) -> tuple[Extent, Extent, Extent, Extent]:
    """`sizes` in the axis order of an input: [N, H, W, 3] where the last axis is 3, else [N, 3, H, W]."""
    colours = Extent.of(CHANNELS)
    if shape[3] == CHANNELS:
        return sizes.batch, sizes.height, sizes.width, colours
    return sizes.batch, colours, sizes.height, sizes.width


def fits_profile(shape: tuple[int, ...], profile: InputShape) -> bool:
    """Whether the profile leaves the sizes alone that are fixed in `shape`."""
    ranges = axis_ranges(shape, profile)
    return all(size == -1 or extent.low == extent.high == size for size, extent in zip(shape, ranges, strict=True))


def sizes_text(shape: tuple[int, ...]) -> str:
    """The shape for messages, for example `[1, ?, ?, 3]`."""
    return f"[{', '.join('?' if size == -1 else str(size) for size in shape)}]"


def sidecar_path(engine: Path) -> Path:
    """`model.engine` -> `model.engine.json`."""
    return engine.with_name(f"{engine.name}.json")


def read_sidecar(engine: Path) -> EngineSidecar:
    """Read the sidecar beside `engine`."""
    return read_described(
        sidecar_path(engine),
        EngineSidecar,
        "an engine",
        missing="An engine and its .json belong together: copy both, or build it again with rcil-export.",
        wrong="Build the engine again with this version of rcil-export.",
    )


def check_unchanged(engine: Path) -> EngineSidecar:
    """Read the sidecar and raise unless the engine is the file that it describes."""
    sidecar = read_sidecar(engine)
    try:
        found = sha256_of(engine)
    except OSError as error:
        raise CheckpointError(f"cannot read {engine}: {error.strerror}", "Check the path.") from error
    if found != sidecar.engine_sha256:
        raise EngineError(
            f"{engine} is not the file that {sidecar_path(engine).name} describes: "
            f"its sha256 is {found[:12]}…, not {sidecar.engine_sha256[:12]}…",
            "It was damaged, or replaced without its .json. Copy both files again, or build the engine again.",
        )
    return sidecar


def check_installed(engine: Path, sidecar: EngineSidecar) -> Flavour:
    """The installed TensorRT, which must be the one that `engine` was built with."""
    here = installed()
    needs = f"{TITLES[sidecar.flavour]} {sidecar.version}"
    if sidecar.flavour not in here:
        has = ", ".join(flavour.title for flavour in here.values()) or "no TensorRT"
        raise EngineError(
            f"{engine} needs {needs}, but {has} is installed",
            f"Install it with: {INSTALL[sidecar.flavour]} — or use {sidecar.onnx_file}.",
        )
    if here[sidecar.flavour].version != sidecar.version:
        raise EngineError(
            f"{engine} was built with {needs}, but {here[sidecar.flavour].title} is installed",
            f"Engines run with their own version only: build it again from {sidecar.onnx_file}.",
        )
    return here[sidecar.flavour]


def describe_engine(path: Path) -> dict[str, Any]:
    """JSON-ready: the content of the sidecar and the size of the engine; raises if the two do not belong together."""
    sidecar = check_unchanged(path)
    return {"engine": path.name, "bytes": path.stat().st_size, **sidecar.model_dump(mode="json")}
