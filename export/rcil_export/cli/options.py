"""Command-line options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rcil.cli.completion import CHECKPOINTS, DEPLOYED, files, one_of, some_of
from rcil.cli.options import AsJson, Device, DryRunFlag, MaxImages, TrainingScale, Trust
from rcil_export.runtime.devices import DEVICES

__all__ = ["AsJson", "Device", "DryRunFlag", "MaxImages", "TrainingScale", "Trust"]

# Names of `rcil_export.graph.interface`, duplicated here so that `--help` does not import pydantic.
PRECISIONS = ("fp32", "fp16", "bf16", "int8")
OUTPUTS = ("mask", "confidence", "logits")
INPUTS = ("uint8", "float")
RUNTIMES = ("any", "cpu", "tensorrt")
ARTEFACTS = files(*CHECKPOINTS, *DEPLOYED)
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A checkpoint (.safetensors) of any step.", autocompletion=files(*CHECKPOINTS)
    ),
]
OutputFolder = Annotated[Path, typer.Option("-o", "--output", help="Folder to write to; files in it are replaced.")]
Size = Annotated[
    str | None,
    typer.Option("--size", metavar="HxW", help="Height and width of the images. [default: 512x512, or see --scale]"),
]
InputScale = Annotated[
    float | None,
    typer.Option(
        "--scale",
        min=0.01,
        max=4,
        help="Instead of --size: height and width as a multiple of those of --images. [default: as in the training]",
    ),
]
Dynamic = Annotated[
    str | None,
    typer.Option(
        "--dynamic", metavar="HxW:HxW:HxW", help="Range of sizes instead of --size: smallest, usual, largest."
    ),
]
Batch = Annotated[
    str, typer.Option("--batch", metavar="N|N:N:N", help="Images at once, or smallest, usual and largest number.")
]
PrecisionName = Annotated[
    str, typer.Option("--precision", help="fp32, fp16, bf16 or int8.", autocompletion=one_of(*PRECISIONS))
]
OutputNames = Annotated[
    str,
    typer.Option(
        "--outputs", help="Outputs of the graph: any of mask, confidence, logits.", autocompletion=some_of(*OUTPUTS)
    ),
]
InputName = Annotated[
    str,
    typer.Option(
        "--input", help="uint8 (images as they are) or float (normalised planes).", autocompletion=one_of(*INPUTS)
    ),
]
OpsetNumber = Annotated[int | None, typer.Option("--opset", help="ONNX opset, 18 to 23. [default: 18, for bf16 22]")]
RuntimeName = Annotated[
    str,
    typer.Option(
        "--for",
        help="any: correct on every runtime. cpu: faster on CPUs, wrong on GPUs. tensorrt: same as any.",
        autocompletion=one_of(*RUNTIMES),
    ),
]
Gpus = Annotated[str, typer.Option("--gpu", metavar="SM,SM", help="GPUs to build for, such as sm86,sm89.")]
Calibrate = Annotated[
    Path | None, typer.Option("--calibrate", help="Folder of site images to measure ranges on; not for fp32.")
]
CalibrationMethod = Annotated[
    Literal["percentile", "entropy"], typer.Option("--calibration", help="How int8 chooses ranges.")
]
VnniChoice = Annotated[
    Literal["auto", "yes", "no"] | None,
    typer.Option(
        "--vnni",
        help="Whether the CPU that will run int8 has VNNI or ARM dot products: 8-bit weights if so, else 7-bit ones. "
        "auto: as this machine. [default: auto]",
    ),
]
Images = Annotated[
    Path | None, typer.Option("--images", help="Folder of images to compare outputs on; a site folder also gives mIoU.")
]
LimitTexts = Annotated[
    str,
    typer.Option(
        "--limits", metavar="NAME=NUMBER,...", help="Changes to the limits, such as agreement=0.995,miou_drop=1."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Accept a checkpoint that is marked as rejected.")]
DeviceName = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or tensorrt.", autocompletion=one_of(*DEVICES))
]
SignKey = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEY", help="EC private key (PEM); signs the delivered files in model.sig."),
]
SignPassword = Annotated[
    str | None,
    typer.Option("--sign-password", envvar="RCIL_SIGN_PASSWORD", help="Password of the key.", show_default=False),
]
TritonInstances = Annotated[
    int | None, typer.Option("--triton-instances", min=1, help="Instances that run at once, on each GPU or on the CPU.")
]
TritonDevice = Annotated[
    str, typer.Option("--triton-device", help="auto, cpu, gpu, or indices of the server's GPUs such as 0,1.")
]
TritonThreads = Annotated[
    int | None, typer.Option("--triton-threads", min=1, help="Threads of ONNX Runtime on the CPU, per instance.")
]
TritonAccelerator = Annotated[
    Literal["none", "tensorrt"],
    typer.Option("--triton-accelerator", help="Run the ONNX file through TensorRT on the server's GPUs."),
]
TritonCache = Annotated[
    str,
    typer.Option("--triton-cache", metavar="DIR", help="Folder on the server for the engines that TensorRT builds."),
]
Flavour = Annotated[
    Literal["auto", "rtx", "classic"], typer.Option("--flavour", help="Which TensorRT builds the engine.")
]
TimingCache = Annotated[
    bool,
    typer.Option(
        "--timing-cache/--no-timing-cache",
        help="Classic TensorRT: keep kernel timings, so that the next build is faster.",
    ),
]
