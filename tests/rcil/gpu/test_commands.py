"""What `rcil eval`, `prelabel`, `add-class` and `classify` run on a GPU, on fake CUDA tensors."""

import contextlib
from unittest import mock

import pytest
import torch
import yaml
from fake_cuda import fake_cuda
from networks import small_arch
from sites import make_site

from rcil.checkpoint import file
from rcil.classify import methods
from rcil.classify import run as classify_run
from rcil.classify.network import ImageClassifier
from rcil.classify.task import ClassifyTask
from rcil.labelling.prelabel import prelabel
from rcil.model.metadata import Metadata, class_table
from rcil.nn import Segmenter, begin_step, build
from rcil.nn.fold import duplicate
from rcil.report.models import evaluate_models
from rcil_export import fold_checkpoint

NAMES = ["background", "ball", "cone"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    network = begin_step(build(small_arch(), [NAMES[:2]]), NAMES[2:])
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    file.save(path, network, Metadata(architecture=network.arch, classes=class_table([NAMES[:2], NAMES[2:]]), step=1))
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return make_site(tmp_path_factory.mktemp("data") / "site", images=3)


@contextlib.contextmanager
def networks_seen(kind):
    """The devices of inputs and parameters, for every forward pass of a network of this kind."""
    seen = []

    def look(part, inputs):
        if isinstance(part, kind):
            seen.append({str(inputs[0].device), *(str(p.device) for p in part.parameters())})

    with torch.nn.modules.module.register_module_forward_pre_hook(look):
        yield seen


@contextlib.contextmanager
def fake_run(model):
    """The devices that the network of a checkpoint is seen on; its numbers are read before tensors become fake."""
    tensors = file.read_tensors(model)
    with (
        fake_cuda(),
        mock.patch.object(file, "read_tensors", side_effect=lambda path: dict(tensors)),
        networks_seen(Segmenter) as seen,
    ):
        yield seen


def evaluated(model, site, device):
    with fake_run(model) as seen:
        (found,) = evaluate_models([model], site, "val", device=device)
    return seen, found.report.images


def labelled(model, site, output, device):
    with fake_run(model) as seen:
        document = prelabel(model, site / "images" / "val", output, device=device)
    return seen, len(document["images"])


SLOWER = [pytest.param(*case, marks=pytest.mark.slow) for case in (("cuda", "cuda:0"), ("cpu", "cpu"))]


@pytest.mark.parametrize(("device", "used"), [("auto", "cuda:0"), *SLOWER])
def test_eval_and_prelabel(gpu, model, site, tmp_path, device, used):
    for seen, images in (gpu(evaluated, model, site, device), gpu(labelled, model, site, tmp_path / "out", device)):
        assert images == 3 and seen and all(devices == {used} for devices in seen)


def classified(document, folder, device):
    """All steps of a task; checkpoints, which cannot be written without numbers, stay in memory."""
    kept = {}

    def keep(path, network, metadata):
        kept[path] = duplicate(network, {}).to("cpu").eval(), metadata
        path.touch()

    def header(path):
        return mock.Mock(metadata=kept[path][1])

    task = ClassifyTask.model_validate(document)
    task = task.model_copy(update={"training": task.training.model_copy(update={"device": device})})
    patches = {
        "save_classifier": keep,
        "load_classifier": lambda path: (duplicate(kept[path][0], {}), kept[path][1]),
        "read_header": header,
        "sha256_of": lambda path: "0" * 64,
    }
    with fake_cuda() as watch, networks_seen(ImageClassifier) as seen, contextlib.ExitStack() as stack:
        for name, value in patches.items():
            stack.enter_context(mock.patch.object(classify_run, name, value))
        # k-means runs on the CPU and looks at numbers
        stack.enter_context(mock.patch.object(methods, "kmeans", lambda points, count, _: points[:1].expand(count, -1)))
        results = classify_run.run_classify(task, folder)
    return seen, len(results["steps"]), watch.waits


@pytest.mark.parametrize("method", [pytest.param("eeil", marks=pytest.mark.slow), "podnet"])
def test_classify(gpu, tmp_path, method):
    document = yaml.safe_load(
        """
        data: {size: 16}
        protocol: {first: 4, later_steps: 1}
        network: {width: 2, blocks: [1, 1, 1, 1]}
        memory: {per_class: 2}
        training: {iterations: [2, 2], tune_iterations: 1, batch: 8, settle: 1}
        """
    )
    document["method"] = {"name": method}
    seen, steps, _ = gpu(classified, document, tmp_path / "gpu", "auto")
    assert steps == 2 and len(seen) > 10
    assert {frozenset(devices) for devices in seen} == {frozenset({"cuda:0"})}


def folded(model, output):
    """Where the folded network is compared, and where it is when it is checked once more and written."""
    places = []

    def look(*args):
        (network,) = (value for value in args if isinstance(value, Segmenter))
        places.append({parameter.device.type for parameter in network.parameters()})

    with fake_run(model) as seen, contextlib.ExitStack() as stack:
        for name in ("save", "_first_wrong_tensor"):
            stack.enter_context(mock.patch.object(fold_checkpoint, name, look))
        fold_checkpoint.fold_checkpoint(model, output, device="auto")
    return [devices for devices in seen if "meta" not in devices], places


def test_fold(gpu, model, tmp_path):
    seen, places = gpu(folded, model, tmp_path / "folded.safetensors")
    assert seen == [{"cuda:0"}] * 2 and places == [{"cpu"}] * 2
