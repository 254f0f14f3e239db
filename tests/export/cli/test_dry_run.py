"""`--dry-run` refuses what the export refuses, with the same words."""

import os

import numpy as np
import pytest
from commands import call
from exports import described
from keys import make_keys
from networks import small_arch
from sites import make_site

from rcil.checkpoint.file import save
from rcil.classify.checkpoint import save_classifier
from rcil.classify.network import HeadSpec, build_classifier
from rcil.core.images import write_image
from rcil.model.architecture import Architecture
from rcil.model.metadata import ClassifierMetadata, Metadata, class_table
from rcil.nn import build
from rcil_export import run as run_module
from rcil_export.convert import deployed_metadata
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import InputShape
from rcil_export.triton.repository import publish

INTERFACE = Interface(shape=InputShape.of(48, 64))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Checkpoints, images, keys and places where nothing can be written."""
    root = tmp_path_factory.mktemp("world")
    model, metadata = described("resnet18", 1)
    save(root / "step1.safetensors", model, metadata)
    save(root / "step2.safetensors", *described("resnet18", 2))
    save(root / "rejected.safetensors", model, metadata.model_copy(update={"rejected": "cone dropped 9 points"}))
    wide = build(small_arch("resnet18").replace(width=12), [["background", "a"]]).eval()
    save(root / "wide.safetensors", wide, Metadata(architecture=wide.arch, classes=class_table([["background", "a"]])))
    arch = Architecture(backbone="resnet18", blocks=(1, 1, 1, 1), width=4)
    network = build_classifier(arch, HeadSpec("linear"), [["a", "b"]])
    classes = class_table([["a", "b"]])
    described_network = ClassifierMetadata(architecture=network.arch, classes=classes, head="linear", size=32)
    save_classifier(root / "classifier.safetensors", network.eval(), described_network)
    (root / "text.safetensors").write_text("no tensors")
    (root / "file").write_text("a file")
    (root / "file.onnx").write_text("a graph")
    (root / "empty").mkdir()
    make_site(root / "site")
    write_image(root / "photos" / "one.png", np.zeros((48, 64, 3), np.uint8))
    (root / "photos" / "list.txt").write_text("x")
    (root / "full").mkdir()
    (root / "full" / "notes.txt").write_text("mine")
    make_keys(root)
    make_keys(root, "other")
    make_keys(root, "locked", "open sesame")
    (root / "closed").mkdir(mode=0o500)
    publish(
        root / "file.onnx",
        deployed_metadata(metadata, root / "step1.safetensors"),
        INTERFACE,
        root / "models",
        name="rcil",
    )
    return root


REFUSED = {
    "output is a file": "step1.safetensors -o file",
    "output below a file": "step1.safetensors -o file/out",
    "output may not be written": "step1.safetensors -o closed/out",
    "no checkpoint": "none.safetensors -o out",
    "checkpoint is text": "text.safetensors -o out",
    "checkpoint is a folder": "site -o out",
    "rejected": "rejected.safetensors -o out",
    "size of nothing": "step1.safetensors -o out --size 0x0",
    "size that is none": "step1.safetensors -o out --size big",
    "size and range": "step1.safetensors -o out --size 48x64 --dynamic 16x16:48x64:96x96",
    "batch": "step1.safetensors -o out --batch 0",
    "batch range": "step1.safetensors -o out --batch 4:2:1",
    "precision": "step1.safetensors -o out --precision fp17",
    "outputs": "step1.safetensors -o out --outputs masks",
    "no outputs": "step1.safetensors -o out --outputs ,",
    "input": "step1.safetensors -o out --input uint9",
    "opset": "step1.safetensors -o out --opset 99",
    "opset without bf16": "step1.safetensors -o out --precision bf16 --opset 18",
    "target": "step1.safetensors -o out --target engines",
    "limits": "step1.safetensors -o out --limits tolerance=1",
    "limits without a number": "step1.safetensors -o out --limits agreement=x",
    "one round": "step1.safetensors -o out --rounds 1",
    "images are missing": "step1.safetensors -o out --images none",
    "images are empty": "step1.safetensors -o out --images empty",
    "images of other classes": "step1.safetensors -o out --images site",
    "calibration is missing": "step1.safetensors -o out --precision fp16 --calibrate none",
    "calibration is empty": "step1.safetensors -o out --precision int8 --images photos --calibrate empty",
    "calibration is a file": "step1.safetensors -o out --precision int8 --images photos --calibrate file",
    "previous is missing": "step1.safetensors -o out --previous none.safetensors",
    "previous is text": "step1.safetensors -o out --previous text.safetensors",
    "previous of another network": "step1.safetensors -o out --previous wide.safetensors",
    "unknown GPU": "step1.safetensors -o out --target onnx,engine --flavour rtx --gpu sm999",
    "unknown GPU, no engine": "step1.safetensors -o out --gpu sm999",
    "old GPU for bf16": "step1.safetensors -o out --target onnx,engine --flavour rtx --precision bf16 --gpu sm75",
    "classic TensorRT": "step1.safetensors -o out --target onnx,engine --flavour classic",
    "Triton name": "step1.safetensors -o out --triton new --name a/b",
    "Triton repository below a file": "step1.safetensors -o out --triton file/models",
    "Triton repository is a file": "step1.safetensors -o out --triton file",
    "published before": "step1.safetensors -o out --triton models",
    "other tensors than before": "step2.safetensors -o out --triton models --outputs mask,confidence",
    "other batches than before": "step2.safetensors -o out --triton models --batch 1:1:4",
    "float for Triton": "step1.safetensors -o out --triton new --input float",
    "no mask for Triton": "step1.safetensors -o out --triton new --outputs logits",
    "Triton device": "step1.safetensors -o out --triton new --triton-device gpus",
    "Triton GPUs twice": "step1.safetensors -o out --triton new --triton-device 0,0",
    "TensorRT on a CPU": "step1.safetensors -o o --triton t --triton-device cpu --triton-accelerator tensorrt",
    "Triton accelerator for bf16": "step1.safetensors -o out --triton t --precision bf16 --triton-accelerator tensorrt",
    "Triton cache alone": "step1.safetensors -o out --triton new --triton-cache /cache",
    "Triton cache with quotes": 'step1.safetensors -o out --triton t --triton-accelerator tensorrt --triton-cache a"b',
    "Triton options without Triton": "step1.safetensors -o out --triton-instances 2",
    "no key": "step1.safetensors -o out --sign none.pem",
    "key is text": "step1.safetensors -o out --sign file",
    "key is public": "step1.safetensors -o out --sign key.pub",
    "key is locked": "step1.safetensors -o out --sign locked.pem",
    "key with another password": "step1.safetensors -o out --sign locked.pem --sign-password guess",
    "key that needs no password": "step1.safetensors -o out --sign key.pem --sign-password guess",
    "other files beside the signature": "step1.safetensors -o full --sign key.pem",
    "trusted key is private": "step1.safetensors -o out --sign key.pem --trust key.pem",
    "trust in another key": "step1.safetensors -o out --sign key.pem --trust other.pub",
    "trust without a signature": "step1.safetensors -o out --triton new --trust key.pub",
    "trust for nothing": "step1.safetensors -o out --trust key.pub",
    "classifier in fp16": "classifier.safetensors -o out --precision fp16",
    "classifier with a mask": "classifier.safetensors -o out --outputs confidence",
    "classifier with calibration": "classifier.safetensors -o out --calibrate photos",
    "classifier for Triton": "classifier.safetensors -o out --triton new",
    "classifier with Triton options": "classifier.safetensors -o out --triton-threads 2",
    "classifier with a previous step": "classifier.safetensors -o out --previous step1.safetensors",
    "classifier: output is a file": "classifier.safetensors -o file",
    "classifier: output may not be written": "classifier.safetensors -o closed/out",
    "classifier: key": "classifier.safetensors -o out --sign file",
    "classifier: other files beside the signature": "classifier.safetensors -o full --sign key.pem",
    "classifier: unknown GPU": "classifier.safetensors -o out --target onnx,engine --flavour rtx --gpu sm999",
    "classifier: unknown GPU, no engine": "classifier.safetensors -o out --gpu sm999",
    "classifier: images are missing": "classifier.safetensors -o out --images none",
    "classifier: images are empty": "classifier.safetensors -o out --images empty",
    "classifier: one round": "classifier.safetensors -o out --rounds 1",
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_dry_run_refuses_what_the_export_refuses(world, monkeypatch, case):
    if "closed" in REFUSED[case] and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    if "--flavour rtx" in REFUSED[case]:
        pytest.importorskip("tensorrt_rtx")
    monkeypatch.chdir(world)
    monkeypatch.setattr(run_module, "write_onnx", lambda *_, **__: pytest.fail("the export began"))
    before = sorted(path for path in world.rglob("*"))
    words = REFUSED[case].split()
    if "--size" not in words and "classifier" not in case:
        words += ["--size", "48x64"]
    if "--rounds" not in words:
        words += ["--rounds", "0"]
    real, dry = call("rcil-export", *words), call("rcil-export", *words, "--dry-run")
    assert real.code not in (0, 5), real.err
    assert (dry.code, dry.err) == (real.code, real.err)
    assert not dry.out
    assert sorted(path for path in world.rglob("*")) == before, "nothing is written"
