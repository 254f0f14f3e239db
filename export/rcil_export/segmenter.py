"""Export of a segmenter: what its request must satisfy, its conversion, and the comparison with its checkpoint."""

from __future__ import annotations

from pathlib import Path

import onnx

from rcil.checkpoint.file import load_for_inference
from rcil.core.errors import ConfigError, MissingDependencyError
from rcil.core.log import Notify
from rcil.evaluation.evaluate import rows_by_value
from rcil.model.metadata import Metadata
from rcil.nn.attached.network import AttachedNetwork
from rcil_export.checks.artefact import CheckpointArtefact, OnnxArtefact, open_artefact
from rcil_export.checks.bisect import bisect
from rcil_export.checks.limits import limits_for
from rcil_export.checks.lineage import check_parent
from rcil_export.checks.outputs.compare import compare_outputs
from rcil_export.checks.outputs.report import OutputsReport
from rcil_export.checks.quantisation import layer_reference, quantisation_result
from rcil_export.checks.result import Item, Result
from rcil_export.checks.structure import check_document
from rcil_export.convert import check_vnni, convert
from rcil_export.delivery import ENGINE_NAME
from rcil_export.engine.errors import EngineError
from rcil_export.engine.flavour import find_flavour
from rcil_export.engine.gpu import find_gpus
from rcil_export.engine.sidecar import EngineSidecar
from rcil_export.exportable import MAX_IMAGES, check_output
from rcil_export.fold_checkpoint import load_deployable
from rcil_export.graph.dynamo import check_interface
from rcil_export.graph.interface import GraphInterface, GraphOptions, Interface, make_interface
from rcil_export.images import CheckImages, images_for
from rcil_export.precision.feeds import find_feeds, split_images
from rcil_export.precision.half import check_op
from rcil_export.precision.record import CalibrationOptions
from rcil_export.precision.replay import Converted
from rcil_export.request import Request
from rcil_export.resources import part
from rcil_export.triton.repository import check_publishable
from rcil_export.triton.serving import Serving


class SegmenterExport:
    """See `Exportable`.

    Args:
        request: For a checkpoint of a segmenter.
    """

    def __init__(self, request: Request) -> None:
        assert isinstance(request.interface, Interface)
        self.request, self.graph = request, request.interface
        if self.graph.precision in ("fp16", "bf16"):
            check_op("Conv", self.graph.precision, self.graph.opset)
        self.network, self.metadata = load_deployable(request.model, force=request.force)
        if isinstance(self.network, AttachedNetwork):
            check_interface(self.network, self.graph)
        check_vnni(request.vnni, self.graph)
        self.images = self._images()
        if self.images.data is not None:
            rows_by_value(self.images.data, self.network.names)
        self._artefact = CheckpointArtefact(request.model.name, self.network, self.metadata)
        if request.parent is not None:
            check_parent(self._artefact, request.parent)
        self._check_triton()

    @staticmethod
    def interface(path: Path, metadata: Metadata, options: GraphOptions) -> Interface:
        """See `Exportable.interface`."""
        return make_interface(options)

    @staticmethod
    def exact_document(path: Path, metadata: Metadata, interface: GraphInterface) -> onnx.ModelProto:
        """See `Exportable.exact_document`."""
        assert isinstance(interface, Interface)
        return convert(load_for_inference(path)[0], metadata, interface).document

    @property
    def summary(self) -> str:
        """See `Exportable.summary`."""
        return f"{self.metadata.architecture.backbone}, step {self.metadata.step}, {len(self.metadata.classes)} classes"

    @property
    def proves_engine(self) -> bool:
        """See `Exportable.proves_engine`."""
        return "engine" in self.request.targets

    def convert(self, deployed: Metadata, notify: Notify) -> Converted:
        """See `Exportable.convert`."""
        return convert(
            self.network,
            deployed,
            self.graph,
            calibrate=self.request.calibrate,
            images=self.request.images,
            limits=limits_for("fp32", self.graph.precision, self.request.limits),
            calibration=CalibrationOptions(self.request.calibration),
            vnni=self.request.vnni or "auto",
            say=notify,
        )

    def check(
        self, graph: Path, converted: Converted, sidecar: EngineSidecar | None
    ) -> tuple[list[Result], list[OutputsReport]]:
        """Structure, outputs and layers of the graph; for int8 also how it was rounded; outputs of the engine."""
        kept = (*converted.notes.get("kept_fp32", ()), *converted.notes.get("fp32_convs", ()))
        results: list[Result] = [*check_document(graph, self.request.model, self.metadata, kept=kept)]
        with open_artefact(graph) as candidate:
            candidate.name = graph.name
            limits = limits_for("fp32", self.graph.precision, self.request.limits)
            with part("outputs"):
                outputs = compare_outputs(self._artefact, candidate, self.images, limits)
            results.append(outputs.as_result())
            with part("layers"):
                first, rebuilt = layer_reference(self._artefact, candidate)
                results.append(bisect(first, candidate, next(iter(self.images)).pixels, limits.node).as_result())
            if rebuilt is not None and isinstance(candidate, OnnxArtefact) and converted.record is not None:
                with part("rounding"):
                    ranges = converted.record.ranges
                    results.append(
                        quantisation_result(self._artefact, candidate, None, measured=ranges, rebuilt=rebuilt)
                    )
        if sidecar is None:
            return results, [outputs]
        with part("outputs of the engine"):
            engine = graph.with_name(ENGINE_NAME)
            result, more = check_engine(graph, engine, sidecar, self.images, self.request.limits)
        return [*results, result], [outputs, *more]

    def _images(self) -> CheckImages:
        """The images to compare outputs on; for int8 those that judged the conversion."""
        calibrate, images = self.request.calibrate, self.request.images
        if self.graph.precision == "int8":
            return split_images(calibrate, images, self.metadata, self.graph).judged
        if self.graph.precision != "fp32":
            find_feeds(calibrate, self.metadata, self.graph)
        return images_for(images or calibrate, self.graph.shape, most=MAX_IMAGES)

    def _check_triton(self) -> None:
        """Raise if the model could not be published in the end."""
        request = self.request
        if request.triton is None:
            if request.serving != Serving():
                raise ConfigError(
                    "--triton-... options are for --triton, which is not given", "Name a repository with --triton."
                )
            return
        classic = "engine" in request.targets and find_flavour(request.flavour).name == "classic"
        check_output(request.triton)
        check_publishable(
            self.metadata,
            self.graph,
            request.triton,
            name=request.name,
            backend="tensorrt" if classic else "onnxruntime",
            serving=request.serving,
            force=request.force,
        )


def check_engine(
    graph: Path, engine: Path, sidecar: EngineSidecar, images: CheckImages, changes: dict[str, float]
) -> tuple[Result, tuple[OutputsReport, ...]]:
    """Compare both on images; where that is not possible here, one item says why.

    Args:
        graph: The ONNX file.
        engine: Built from it.
        sidecar: The engine's.
        images: To compare on.
        changes: The user's limits; the others are those of the precision.
    """
    reason = _reason_not_to_run(sidecar)
    passed = None
    if reason is None:
        try:
            report = _compare(graph, engine, sidecar, images, changes)
        except MissingDependencyError as error:
            reason = error.message
        except EngineError as error:
            reason, passed = error.message, False
        else:
            found = report.as_result()
            return Result("engine_outputs", found.title, found.items), (report,)
    item = Item("engine", "Outputs of the engine", passed, f"not compared: {reason}", f"those of {graph.name}")
    return Result("engine_outputs", f"Outputs of {engine.name} against {graph.name}", (item,)), ()


def _reason_not_to_run(sidecar: EngineSidecar) -> str | None:
    gpus = find_gpus()
    if not gpus:
        return "there is no GPU here; run `rcil-export check` on the device"
    if gpus[0].capability not in sidecar.gpus:
        return f"the GPU of this machine is {gpus[0].capability}, and the engine is for {', '.join(sidecar.gpus)}"
    return None


def _compare(
    graph: Path, engine: Path, sidecar: EngineSidecar, images: CheckImages, changes: dict[str, float]
) -> OutputsReport:
    with open_artefact(graph) as first, open_artefact(engine) as second:
        first.name, second.name = graph.name, engine.name
        limits = limits_for(first.precision, sidecar.precision, changes)
        return compare_outputs(first, second, images, limits)
