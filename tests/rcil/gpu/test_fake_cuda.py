"""Every method on a fake GPU, from the first step to the last evaluation: one device, one dtype, few waits."""

import pytest
from fake_runs import mixed_devices, mixed_dtypes, run_on_gpu, synchronised_step

from rcil.methods import METHODS

MAX_WAITS = {"learn": 1, "recalibrate_norms": 0, "evaluate_together": 1, "start": 0, "prepare": 0, "finish": 0}
"""Times that the host waits for the GPU in one call of each phase: loss terms and masks are fetched, nothing else."""
OF_METHODS = {
    "plop": {"prepare": 2},  # its thresholds are read from a histogram on the host
    "rcil-plus": {"start": 100, "finish": 100},  # L-BFGS looks at its loss; images are copied one by one
    "rcil-plus, pseudo": {"prepare": 2, "finish": 100},
    "rcil-plus, sigmoid": {"finish": 100},
    "joint, refit": {"finish": 100},
}
OPTIONS = {
    "rcil-plus, pseudo": "{taught: false, refit: false, pseudo: true, fit_rows: true, balance: all}",
    "rcil-plus, sigmoid": "{taught: false, refit: false, sigmoid: true, fuse: false}",
    "joint, refit": "{refit: true}",
    "rcil, learnable": "{mix: learnable, late: true}",
    "rcil, max": "{pooling: max, merge: false, freeze: false}",
}
RESNET = "network.backbone=resnet18"
LITE = "network={backbone: efficientnet_lite0, head_width: 8}"
DEFAULT = [("rcil-plus", "fp16", True, RESNET), ("sdr", "fp32", False, RESNET), ("plop", "bf16", True, RESNET)]


def cases():
    """A few in the default run, all methods in all number formats in the long one."""
    yield from (pytest.param(*case, id="-".join(map(str, case[:2]))) for case in DEFAULT)
    formats = (
        ("fp32", False, RESNET),
        ("fp16", True, RESNET),
        ("bf16", True, RESNET),
        ("fp16", False, "network.backbone=resnet50"),
        ("bf16", True, LITE),
    )
    for name in (*METHODS, *OPTIONS):
        for precision, channels_last, network in formats if name in METHODS else formats[:2]:
            case = (name, precision, channels_last, network)
            if case not in DEFAULT:
                title = f"{name}-{precision}-{network.rpartition('=')[2].split(',')[0]}"
                yield pytest.param(*case, id=title, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "precision", "channels_last", "network"), list(cases()))
def test_a_run_stays_on_the_gpu_and_hardly_waits(gpu, task_file, tmp_path, name, precision, channels_last, network):
    overrides = [
        f"method.name={name.partition(',')[0]}",
        f"method.options={OPTIONS.get(name, '{}')}",
        f"training.precision={precision}",
        f"training.channels_last={str(channels_last).lower()}",
        network,
    ]
    waits, kernels = gpu(run_on_gpu, task_file, tmp_path / "run", *overrides)
    allowed = {**MAX_WAITS, "update": int(precision == "fp16"), **OF_METHODS.get(name, {})}  # the scaler looks once
    for phase, calls in waits.items():
        for found in calls:
            assert found.total() <= allowed[phase], f"{phase}: {dict(found)}"
    assert {phase: count["cpu"] for phase, count in kernels.items() if count["cpu"]} == {}, "computed on the CPU"
    assert kernels["learn"]["cuda"] > 30, "nothing was computed"


@pytest.mark.parametrize(
    ("step", "precision"),
    [(1, "fp16"), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, "fp16"), (0, "bf16"), (1, "bf16")))],
)
def test_several_processes_train_in_half_precision(gpu, step, precision):
    assert gpu(synchronised_step, step, precision) == set(), "waits of a batch"


@pytest.mark.parametrize("mistake", [mixed_devices, mixed_dtypes])
def test_the_fake_gpu_refuses_what_a_gpu_refuses(gpu, mistake):
    with pytest.raises(AssertionError, match=r"convolution.* got"):
        gpu(mistake)
