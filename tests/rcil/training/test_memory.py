import pytest
import torch
from networks import small_arch

from rcil.core.errors import TrainingError
from rcil.nn import begin_step, build, fold
from rcil.nn.cost import on_meta
from rcil.tasks.task import TrainingSection
from rcil.training import memory
from rcil.training.memory import check_memory, free_memory, peak_memory

SETTINGS = TrainingSection(crop=64)
CPU = torch.device("cpu")


def kept_for_backward(model, x):
    """Bytes that a real forward pass keeps."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        maps = model.train()(x, maps="before")
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(t.untyped_storage().nbytes() for t in kept.values()), maps


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet_lite0"])
def test_shapes_alone_tell_what_a_real_pass_keeps(backbone):
    model = build(small_arch(backbone), [["background", "ball"]])
    real, maps = kept_for_backward(model, torch.randn(2, 3, 64, 64))
    weights = sum(p.numel() * 4 for p in model.parameters())
    losses = memory.LOSS_COPIES * maps.logits.numel() * 4
    assert peak_memory(model, None, 2, SETTINGS) == pytest.approx(3 * weights + real + losses, rel=0.02)


def test_the_frozen_branch_needs_no_gradient_and_the_teacher_is_counted():
    first = build(small_arch("resnet18"), [["background", "ball"]])
    student = begin_step(first, ["cone"])
    alone = peak_memory(student, None, 2, SETTINGS)
    for parameter in student.parameters():
        parameter.requires_grad_(True)
    frozen = sum(p.numel() for n, p in student.named_parameters() if ".old." in n)
    assert peak_memory(student, None, 2, SETTINGS) >= alone + 8 * frozen > alone
    teacher = fold(first)[0]
    assert peak_memory(student, teacher, 2, SETTINGS) > alone + sum(p.numel() * 4 for p in teacher.parameters())


def test_mixed_precision_and_smaller_pieces_need_less():
    model = build(small_arch("resnet18"), [["background", "ball"]])
    whole = peak_memory(model, None, 4, SETTINGS)
    assert peak_memory(model, None, 2, SETTINGS) < whole
    assert peak_memory(model, None, 4, SETTINGS.model_copy(update={"precision": "bf16"})) < whole


def test_too_much_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 3 * 2**30)
    check_memory(3 * 2**30, CPU, SETTINGS, 0)
    with pytest.raises(TrainingError, match=r"step 1 needs about 9.0 GiB on cpu and 3.0 GiB are free") as error:
        check_memory(9 * 2**30, CPU, SETTINGS.model_copy(update={"batch": 8}), 1)
    assert error.value.hint == "Set training.accumulate to 4, or lower training.crop or training.batch."
    with pytest.raises(TrainingError) as error:
        check_memory(300 * 2**30, CPU, SETTINGS.model_copy(update={"batch": 8}), 1)
    assert error.value.hint == "Lower training.crop or training.batch.", "no piece is small enough"


def test_the_tighter_of_machine_and_container_counts(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert memory._meminfo(meminfo) == 2048 * 1024
    assert memory._meminfo(tmp_path / "none") is None
    assert memory._cgroup(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert memory._cgroup(tmp_path) == 3000
    (tmp_path / "memory.stat").write_text("anon 900\ninactive_file 700\nactive_file 400\n")
    assert memory._cgroup(tmp_path) == 3700, "the kernel drops cached files where memory is wanted"
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._cgroup(tmp_path) is None
    free = free_memory(CPU)
    assert free is None or free > 0


def test_adamw_keeps_two_numbers_a_weight():
    model = build(small_arch("resnet18"), [["background", "a"]])
    sgd, adamw = (
        peak_memory(model, None, 2, TrainingSection(crop=64, optimiser=optimiser)) for optimiser in ("sgd", "adamw")
    )
    assert adamw - sgd == 4 * sum(p.numel() for p in model.parameters())


def test_what_torch_keeps_of_freed_tensors_on_a_gpu_is_free(monkeypatch):
    """From step 1 on torch holds blocks that step 0 no longer uses; the driver counts them as used."""
    gpu, gib = torch.device("cuda", 1), 2**30
    numbers = {"mem_get_info": (1 * gib, 16 * gib), "memory_reserved": 14 * gib, "memory_allocated": 3 * gib}
    asked = []
    for name, value in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: asked.append(device) or value)
    assert free_memory(gpu) == 12 * gib
    assert asked == [gpu] * 3
    check_memory(12 * gib, gpu, SETTINGS, 1)
    with pytest.raises(TrainingError, match=r"needs about 13.0 GiB on cuda and 12.0 GiB are free"):
        check_memory(13 * gib, gpu, SETTINGS, 1)


def test_weights_that_are_there_already_are_not_needed_again():
    model = build(small_arch("resnet18"), [["background", "ball"]])
    size = sum(p.numel() * 4 for p in model.parameters())
    assert memory.weights_on(CPU, (model, None)) == size
    assert memory.weights_on(torch.device("cuda", 0), (model, None)) == 0
    assert memory.weights_on(torch.device("cuda", 0), (on_meta(model),)) == 0
