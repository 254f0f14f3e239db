"""Two gloo processes with half a batch each equal one process with the whole batch."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from networks import NORMS, at_step, needs_abn, randomise, small_arch
from torch.testing._internal.distributed.fake_pg import FakeStore

from rcil.nn.layers import Layers
from rcil.nn.norms import make_norm
from rcil.nn.sync import synchronise_norms
from rcil.train.processes import leave


def whole_batch(kind):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), make_norm(kind, 8)).double()
    randomise(net)
    net[1].weight.data[net[1].weight.abs() < 1e-2] = 0.3
    x, target = torch.randn(5, 3, 6, 7, dtype=torch.float64), torch.randn(5, 8, 4, 5, dtype=torch.float64)
    return net, x, target


def run(net, x, target):
    x = x.clone().requires_grad_()
    out = net.train()(x)
    (out * target).sum().backward()
    return (
        {"out": out.detach(), "dx": x.grad}
        | {f"grad {n}": p.grad for n, p in net.named_parameters()}
        | dict(net.named_buffers())
    )


def worker(rank, kind, folder):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    net, x, target = whole_batch(kind)
    part = slice(0, 2) if rank == 0 else slice(2, 5)  # unequal on purpose
    torch.save(run(synchronise_norms(net), x[part], target[part]), f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
    leave()


@pytest.mark.parametrize("kind", NORMS)
def test_two_processes_equal_one(kind, tmp_path):
    mp.spawn(worker, (kind, str(tmp_path)), nprocs=2)
    expected = run(*whole_batch(kind))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for key, value in expected.items():
        if key in ("out", "dx"):
            got = torch.cat([first[key], second[key]])
        elif key.startswith("grad"):
            got = first[key] + second[key]
        else:
            got = first[key]
            assert torch.equal(first[key], second[key])
        torch.testing.assert_close(got, value, rtol=1e-6, atol=1e-8, msg=lambda m, key=key: f"{key}: {m}")


def test_without_a_group_it_is_an_error_not_a_silent_no_op():
    with pytest.raises(RuntimeError, match="init_process_group"):
        synchronise_norms(whole_batch("batch")[0])


@needs_abn
def test_a_fused_activation_survives(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        unit = Layers("inplace", 0.2, None).plain(torch.nn.Conv2d(3, 8, 3), "leaky")
        randomise(unit)
        x = torch.randn(2, 3, 6, 6)
        expected = unit.eval()(x)
        torch.testing.assert_close(synchronise_norms(unit).eval()(x), expected, rtol=1e-5, atol=1e-5)
    finally:
        dist.destroy_process_group()


@pytest.fixture
def group():
    """A group of two of which the other never says anything: what is exchanged stays as it is."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


HALF = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("kind", ["batch", "abs"])
def test_half_precision_is_normalised_in_float32(group, kind, dtype):
    torch.manual_seed(0)
    plain = make_norm(kind, 8)
    randomise(plain)
    synchronised = synchronise_norms(plain)
    x = (400 * torch.randn(2, 8, 9, 9) + 100).to(dtype)  # squares overflow float16
    results = []
    for norm in (plain, synchronised):
        given = x.clone().requires_grad_()
        y = norm.train()(given)
        assert y.dtype == dtype
        (y.float() * torch.linspace(-1, 1, 9)).sum().backward()
        buffers = (norm.running_mean, norm.running_var)
        results.append([t.float() for t in (y, given.grad, norm.weight.grad, norm.bias.grad, *buffers)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("step", [0, 1])
def test_a_step_trains_in_half_precision(group, step, dtype):
    torch.manual_seed(0)
    model = synchronise_norms(at_step(small_arch(), step)).train()
    with torch.autocast("cpu", dtype):
        maps = model(torch.randn(2, 3, 64, 64), maps="before")
    maps.logits.float().square().mean().backward()
    assert all(stage.dtype == dtype for stage in maps.stages)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert all(buffer.isfinite().all() for buffer in model.buffers())
