"""Command-line options that several commands share, alone or in groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from rcil.cli.completion import DEPLOYED, files, one_of
from rcil.cli.options import AsJson, DryRunFlag, TrainingScale, Trust
from rcil_export.runtime.devices import DEVICES

if TYPE_CHECKING:
    from rcil_serve.runtime.predictor import Layout
    from rcil_serve.stream.outputs.encoders import Encoding

__all__ = ["AsJson", "DryRunFlag", "TrainingScale"]

MODELS = files(*DEPLOYED)
SourceArgument = Annotated[
    str, typer.Argument(help="Video, folder, 'pattern*.jpg', list.txt, camera number, rtsp:// or http:// address.")
]
ModelOption = Annotated[
    Path,
    typer.Option(
        "-m",
        "--model",
        help="model.onnx or model.engine from rcil-export, or triton://host:8000/name on a server.",
        autocompletion=MODELS,
    ),
]
PreviousOption = Annotated[
    Path | None, typer.Option("--previous", help="Model of the previous step, to compare with.", autocompletion=MODELS)
]
DeviceOption = Annotated[
    str,
    typer.Option(help="auto, cpu, cuda, cuda:N or tensorrt; engines run on the GPU.", autocompletion=one_of(*DEVICES)),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="Number of CPU threads; all cores by default.")]
TrustOption = Trust
AlphaOption = Annotated[float, typer.Option(min=0, max=1, help="Opacity of the class colours.")]
ClassesOption = Annotated[str, typer.Option(help="Paint these classes only, for example forklift,pallet.")]
LegendOption = Annotated[bool, typer.Option("--legend/--no-legend", help="Draw a legend in the corner.")]
TimelineOption = Annotated[Path | None, typer.Option("--timeline", help="Plot of class areas over time, .png.")]
ReceiptOption = Annotated[
    Path | None, typer.Option("--receipt", help="Receipt of the run; next to the first output by default.")
]
ViewOption = Annotated[
    str | None,
    typer.Option("--view", metavar="[HOST:]PORT", help="Serve a live view for browsers; on 127.0.0.1 by default."),
]
ViewTokenOption = Annotated[
    str | None,
    typer.Option(envvar="RCIL_TOKEN", help="Bearer token that viewers must send.", show_default=False),
]


@dataclass(frozen=True)
class ModelArgs:
    """The option group of all commands that run models on images: how images enter a model, and where it runs."""

    size: Annotated[
        str | None, typer.Option(metavar="HxW", help="Height and width of the model's input; the aspect ratio is kept.")
    ] = None
    scale: TrainingScale = None
    tile: Annotated[int | None, typer.Option(min=16, help="Cut large images into square tiles of this side.")] = None
    overlap: Annotated[int, typer.Option(min=0, help="Overlap of neighbouring tiles in pixels.")] = 64
    batch: Annotated[int, typer.Option(min=1, help="Batch size, in images or tiles.")] = 1
    device: DeviceOption = "auto"
    threads: ThreadsOption = None
    trust: TrustOption = None

    @property
    def layout(self) -> Layout:
        """The `Layout` that the options describe."""
        from rcil_export.graph.shapes import parse_size
        from rcil_serve.runtime.predictor import Layout

        size = None if self.size is None else parse_size(self.size)
        return Layout(size, self.tile, self.overlap, self.batch, self.scale)


@dataclass(frozen=True)
class StreamArgs(ModelArgs):
    """The option group of `video`, `diff` and `watch`."""

    stride: Annotated[int, typer.Option(help="Process every Nth frame.")] = 1
    start: Annotated[float, typer.Option(help="Seconds to skip at the start.")] = 0.0
    end: Annotated[float | None, typer.Option(help="Stop at this second.")] = None
    max_frames: Annotated[int | None, typer.Option(help="Stop after this many frames.")] = None
    fps: Annotated[float, typer.Option(min=0.01, help="Frame rate of image files.")] = 10.0
    timeout: Annotated[float, typer.Option(min=0.1, help="Reconnect after this many seconds without data.")] = 10.0
    decoder: Annotated[
        str,
        typer.Option(
            help="Video decoder: auto, cpu, cuda or vaapi; auto prefers hardware.",
            autocompletion=one_of("auto", "cpu", "cuda", "vaapi"),
        ),
    ] = "auto"
    attempts: Annotated[int, typer.Option(min=0, help="Failed connections before giving up; 0: never.")] = 0

    def as_fields(self) -> dict[str, Any]:
        """The fields of `rcil_serve.stream.options.StreamOptions`, by name."""
        from fractions import Fraction

        from rcil_serve.stream.sources import Selection
        from rcil_serve.stream.sources.live import LiveOptions

        return {
            "layout": self.layout,
            "selection": Selection(self.stride, self.start, self.end, self.max_frames),
            "live": LiveOptions(self.timeout, self.attempts),
            "rate": Fraction(self.fps).limit_denominator(1001),
            "device": self.device,
            "threads": self.threads,
            "decoder": self.decoder,
            "trust": tuple(self.trust or ()),
        }


@dataclass(frozen=True)
class EncoderArgs:
    """The option group of `video` and `diff`: how videos are encoded."""

    crf: Annotated[int, typer.Option(min=0, max=51, help="H.264 quality (CRF); lower is better.")] = 21
    encoder: Annotated[
        str,
        typer.Option(
            help="H.264 encoder: auto, x264, nvenc or vaapi; auto prefers hardware.",
            autocompletion=one_of("auto", "x264", "nvenc", "vaapi"),
        ),
    ] = "auto"
    preset: Annotated[
        str | None,
        typer.Option(help="Preset of x264: ultrafast (default), superfast, veryfast, ...; slower makes smaller files."),
    ] = None

    @property
    def encoding(self) -> Encoding:
        """The `Encoding` that the options describe."""
        from rcil_serve.stream.outputs.encoders import Encoding

        return Encoding(self.encoder, self.crf, self.preset)


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each parameter whose type is a dataclass, such as `StreamArgs`, into one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            expanded = [(option.name, _default(option), types[option.name]) for option in fields(groups[name])]
        else:
            expanded = [(name, parameter.default, hints[name])]
        parameters += [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, default, kind in expanded
        ]

    @functools.wraps(command)
    def expanded_command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in fields(group)})
        command(**values)

    vars(expanded_command)["__signature__"] = inspect.Signature(parameters)
    return expanded_command


def _default(option: Field[Any]) -> Any:
    return inspect.Parameter.empty if option.default is MISSING else option.default


def names_of(text: str) -> tuple[str, ...]:
    """Split `forklift, pallet` into its names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
