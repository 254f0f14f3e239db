import numpy as np
import pytest
from exports import described
from networks import small_arch
from sites import make_site

from rcil.checkpoint.file import save
from rcil.core.errors import ConfigError, MissingDependencyError, RcilError
from rcil.core.images import write_image
from rcil.model.metadata import Metadata, class_table
from rcil.nn import build
from rcil_export import segmenter
from rcil_export.convert import deployed_metadata
from rcil_export.engine import flavour
from rcil_export.graph.interface import ClassifierInterface, Interface
from rcil_export.graph.shapes import InputShape, parse_shape
from rcil_export.request import Request
from rcil_export.run import dry_run, run_export
from rcil_export.triton.repository import publish

INTERFACE = Interface(shape=InputShape.of(48, 64))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint and what it must not be combined with."""
    root = tmp_path_factory.mktemp("preflight")
    model, metadata = described("resnet18", 1)
    save(root / "step1.safetensors", model, metadata)
    wide = build(small_arch("resnet18").replace(width=12), [["background", "a"]]).eval()
    save(root / "wide.safetensors", wide, Metadata(architecture=wide.arch, classes=class_table([["background", "a"]])))
    stranger = build(small_arch("resnet18"), [["sky", "sea"]]).eval()
    classes = class_table([["sky", "sea"]])
    save(root / "stranger.safetensors", stranger, Metadata(architecture=stranger.arch, classes=classes))
    (root / "empty").mkdir()
    make_site(root / "site")
    write_image(root / "photos" / "one.png", np.zeros((48, 64, 3), np.uint8))
    (root / "model.onnx").write_bytes(b"graph")
    shape = parse_shape("48x64", None, "1:2:4")
    deployed = deployed_metadata(metadata, root / "step1.safetensors")
    publish(root / "model.onnx", deployed, Interface(shape=shape), root / "models", name="yard")
    return root


def without_tensorrt(monkeypatch):
    monkeypatch.setattr(flavour, "installed", dict)


BATCHED = Interface(shape=parse_shape("48x64", None, "1:2:4"))
FLOAT = INTERFACE.model_copy(update={"input": "float"})
INT8 = INTERFACE.model_copy(update={"precision": "int8"})
FOR_CPU = INTERFACE.model_copy(update={"runtime": "cpu"})
WRONG = {
    "GPUs without an engine": ({"gpus": ("sm86",)}, ConfigError, "--gpu is about engines"),
    "timings without an engine": ({"timing_cache": False}, ConfigError, "--no-timing-cache is about engines"),
    "flavour without an engine": ({"flavour": "rtx"}, ConfigError, "--flavour is about engines"),
    "the form for CPUs on Triton": ({"interface": FOR_CPU, "triton": "models", "name": "new"}, ConfigError, "on GPUs"),
    "an engine of the form for CPUs": (
        {"interface": FOR_CPU, "targets": ("onnx", "engine")},
        ConfigError,
        "no engine is built from that form",
    ),
    "one round": ({"rounds": 1}, ConfigError, "rounds is 1"),
    "missing parent": ({"parent": "none.safetensors"}, RcilError, r"none\.safetensors"),
    "parent of another network": ({"parent": "wide.safetensors"}, RcilError, "different networks: width is"),
    "parent of other classes": ({"parent": "stranger.safetensors"}, RcilError, "no class in common"),
    "parent that is no checkpoint": ({"parent": "model.onnx"}, RcilError, r"model\.onnx"),
    "name": ({"triton": "models", "name": "a/b"}, ConfigError, "cannot be the name"),
    "published": ({"triton": "models", "name": "yard", "interface": BATCHED}, RcilError, "was published before"),
    "float for triton": ({"triton": "new", "interface": FLOAT}, ConfigError, "takes float images"),
    "repository in a file": ({"triton": "model.onnx/models"}, RcilError, "is not a folder"),
    "gpu": ({"targets": ("onnx", "engine"), "gpus": ("sm1",), "flavour": "rtx"}, ConfigError, "build for 'sm1'"),
    "calibration": ({"calibrate": "empty", "images": "photos", "interface": INT8}, RcilError, "holds no images"),
    "calibration of other classes": (
        {"calibrate": "site", "interface": INT8},
        RcilError,
        "shares no class with the model",
    ),
}
PATHS = ("parent", "triton", "calibrate", "images")


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("start", [run_export, dry_run])
def test_a_bad_request_fails_before_the_long_work_and_in_a_dry_run(folder, tmp_path, monkeypatch, case, start):
    given, kind, message = WRONG[case]
    if "gpus" in given:
        pytest.importorskip("tensorrt_rtx")
    given = {key: folder / value if key in PATHS else value for key, value in given.items()}
    monkeypatch.setattr(segmenter, "convert", lambda *_, **__: pytest.fail("the long work has begun"))
    request = Request(folder / "step1.safetensors", tmp_path / "out", **{"interface": INTERFACE, **given})
    with pytest.raises(kind, match=message):
        start(request)
    assert not (tmp_path / "out").exists() and not (folder / "new").exists()


@pytest.mark.parametrize("start", [run_export, dry_run])
def test_tensorrt_is_missed_before_the_long_work(folder, tmp_path, monkeypatch, start):
    without_tensorrt(monkeypatch)
    request = Request(folder / "step1.safetensors", tmp_path / "out", INTERFACE, targets=("onnx", "engine"))
    with pytest.raises(MissingDependencyError, match="no TensorRT is installed"):
        start(request)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("start", [run_export, dry_run])
def test_classifiers_are_checked_too(tmp_path, monkeypatch, start):
    without_tensorrt(monkeypatch)
    interface = ClassifierInterface(shape=InputShape.of(32, 32))
    request = Request(tmp_path / "m.safetensors", tmp_path / "out", interface, rounds=1)
    with pytest.raises(ConfigError, match="rounds is 1"):
        start(request)
    request = Request(tmp_path / "m.safetensors", tmp_path / "out", interface, targets=("onnx", "engine"))
    with pytest.raises(MissingDependencyError, match="no TensorRT is installed"):
        start(request)


def test_a_good_request_passes_and_says_what_it_would_write(folder, tmp_path):
    step0, metadata = described("resnet18", 0)
    save(tmp_path / "step0.safetensors", step0, metadata)
    request = Request(
        folder / "step1.safetensors",
        tmp_path / "out",
        BATCHED,
        parent=tmp_path / "step0.safetensors",
        triton=folder / "models",
        name="other",
    )
    plan = dry_run(request)
    assert plan.writes[str(folder / "models" / "other")] == "a version in the Triton repository"
    assert "step 0" in plan.reads[str(tmp_path / "step0.safetensors")]
    assert not (tmp_path / "out").exists() and not (folder / "models" / "other").exists()
