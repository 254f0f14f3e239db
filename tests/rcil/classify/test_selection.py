"""K-means and herding."""

import pytest
import torch

from rcil.classify.heads import kmeans
from rcil.classify.memory import herd


def test_kmeans_finds_clusters_that_are_apart():
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = (centres[:, None] + 0.1 * torch.randn(3, 20, 2, generator=generator)).flatten(0, 1)
    found = kmeans(points, 3, torch.Generator().manual_seed(1))
    nearest = torch.cdist(found, centres).argmin(1)
    assert sorted(nearest.tolist()) == [0, 1, 2]
    means = points.view(3, 20, 2).mean(1)
    assert torch.allclose(found, means[nearest], atol=1e-5)
    assert torch.equal(found, kmeans(points, 3, torch.Generator().manual_seed(1)))


def test_kmeans_with_fewer_points_than_centres_repeats_points():
    points = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = kmeans(points, 5, torch.Generator().manual_seed(0))
    assert found.shape == (5, 2)
    assert {tuple(row) for row in found.tolist()} == {(1.0, 2.0), (3.0, 4.0)}


def test_herding_keeps_the_running_mean_at_the_mean():
    torch.manual_seed(0)
    points = torch.nn.functional.normalize(torch.randn(40, 6) + torch.tensor([3.0, 0, 0, 0, 0, 0]), dim=1)
    chosen = herd(points, 8)
    assert len(set(chosen)) == 8
    target = points.mean(0)
    assert chosen[0] == int((points - target).norm(dim=1).argmin())
    herded = float((points[chosen].mean(0) - target).norm())
    random = sorted(float((points[torch.randperm(40)[:8]].mean(0) - target).norm()) for _ in range(200))
    assert herded < random[10], "closer than 95 % of random choices"


def test_herding_does_not_look_at_lengths_and_keeps_all_where_there_are_few():
    torch.manual_seed(0)
    points = torch.randn(5, 3)
    assert herd(points, 3) == herd(points * torch.tensor([1.0, 9.0, 0.1, 4.0, 7.0])[:, None], 3)
    assert sorted(herd(points, 20)) == [0, 1, 2, 3, 4]
    assert herd(points[:1], 1) == [0]


def test_each_choice_is_the_best_one():
    torch.manual_seed(2)
    points = torch.nn.functional.normalize(torch.randn(9, 4), dim=1)
    chosen = herd(points, 4)
    for size in range(1, 5):
        rest = [place for place in range(9) if place not in chosen[: size - 1]]
        distance = {p: float((points[[*chosen[: size - 1], p]].mean(0) - points.mean(0)).norm()) for p in rest}
        assert distance[chosen[size - 1]] == pytest.approx(min(distance.values()), abs=1e-6)
