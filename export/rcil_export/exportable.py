"""The protocol of what can be exported, and the checks of a request that do not depend on the kind of network."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import onnx

from rcil.core.errors import ConfigError, RcilError
from rcil.core.files import check_writable
from rcil.core.log import Notify
from rcil.model.metadata import Metadata
from rcil_export.checks.limits import limits_for
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.result import Result
from rcil_export.delivery.folder import check_signing
from rcil_export.engine.flavour import choose_gpus, find_flavour
from rcil_export.engine.sidecar import EngineSidecar
from rcil_export.graph.interface import GraphInterface, GraphOptions
from rcil_export.images import CheckImages
from rcil_export.precision.replay import Converted
from rcil_export.request import Request
from rcil_export.runtime.forms import check_engine_form
from rcil_export.timing.interleaved import LatencyOptions

MAX_IMAGES = 32
"""Images to compare outputs on."""


class Exportable(Protocol):
    """A checkpoint that was read and can be exported; there is one implementation per kind of network.

    The pipeline in `run` is the same for all of them. It folds nothing, traces nothing and compares no outputs itself.
    """

    def __init__(self, request: Request) -> None:
        """Read the checkpoint, and raise for everything about the request that would fail later."""

    @staticmethod
    def interface(path: Path, metadata: Metadata, options: GraphOptions) -> GraphInterface:
        """The interface that the options ask for; options that the kind of network does not have are refused."""

    @staticmethod
    def exact_document(path: Path, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
        """The fp32 graph of the folded network of a checkpoint, with the description `metadata`."""

    @property
    def metadata(self) -> Metadata:
        """The description in the checkpoint."""

    @property
    def images(self) -> CheckImages:
        """The images that outputs are compared on."""

    @property
    def summary(self) -> str:
        """The network in a few words, for the report."""

    @property
    def proves_engine(self) -> bool:
        """Whether the certificate compares an engine with that of the plain network."""

    def convert(self, deployed: Metadata, notify: Notify) -> Converted:
        """Fold the network and write it as ONNX in the precision that is asked for, with its new description."""

    def check(
        self, graph: Path, converted: Converted, sidecar: EngineSidecar | None
    ) -> tuple[list[Result], list[OutputsReport]]:
        """Compare the written graph with the checkpoint, and the engine beside it, if there is one, with the graph."""


def check_request(request: Request) -> None:
    """Raise for what is wrong with a request whatever the checkpoint holds; nothing is written."""
    if request.rounds:
        LatencyOptions(rounds=request.rounds)
    limits_for("fp32", request.interface.precision, request.limits)
    _check_engine(request)
    check_output(request.output)
    check_signing(request.signing, request.output, publishes=request.triton is not None)


def check_output(folder: Path) -> None:
    """Raise if no folder can be made or written there."""
    if folder.exists() and not folder.is_dir():
        raise RcilError(f"cannot write to {folder}: it is a file", "Name a folder.")
    check_writable(folder)


def _check_engine(request: Request) -> None:
    """Raise for an engine that cannot be built, and for engine options without an engine."""
    if "engine" in request.targets:
        check_engine_form(request.interface, "the graph asked for")
        choose_gpus(find_flavour(request.flavour), request.gpus, request.interface.precision)
        return
    options = {
        "--gpu": bool(request.gpus),
        "--flavour": request.flavour != "auto",
        "--no-timing-cache": not request.timing_cache,
    }
    for name in (name for name, given in options.items() if given):
        remedy = f"Write `--target onnx,engine`, or leave {name} out."
        if request.targets_reason:  # none can be built here
            raise ConfigError(f"{name} is about engines; {request.targets_reason}", f"Otherwise, leave {name} out.")
        raise ConfigError(f"{name} is about engines, and no engine is asked for", remedy)
