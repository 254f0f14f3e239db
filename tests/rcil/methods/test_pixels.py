import pytest
import torch
from networks import at_step, small_arch

from rcil.methods import pixels as sampling
from rcil.methods.pixels import MIN_COLUMNS, pick_pixels, sample_pixels

PER_IMAGE = 300


def test_picked_pixels_are_what_the_classifier_reads_and_what_is_known_of_them():
    model = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = torch.randn(2, 3, 35, 35)
    labels = torch.tensor([0, 0, 3, 1, 255])[torch.randint(0, 5, (2, 35, 35))]
    with torch.no_grad():
        maps = model(images, maps="after")
        pixels = pick_pixels(maps.decoder, labels, maps.logits, 4, per_image=PER_IMAGE)
        weight, bias = model.classifier.rows()
        logits = pixels.features @ weight.flatten(1).T + bias
    every = labels.numel() // (2 * PER_IMAGE)
    assert every == 4
    known = (labels != 255).flatten()[::every]
    expected = maps.logits.movedim(1, -1).reshape(-1, 3)[::every][known]
    torch.testing.assert_close(logits, expected)
    named = labels.flatten()[::every][known]
    assert torch.equal(pixels.targets[named != 0].argmax(dim=1), named[named != 0])
    torch.testing.assert_close(pixels.targets[named == 0][:, :3], expected[named == 0].softmax(dim=1))
    assert not pixels.targets[named == 0][:, 3].any()
    meant = pick_pixels(maps.decoder, labels, None, 4, per_image=PER_IMAGE)
    assert torch.equal(meant.targets.argmax(dim=1), named)


@pytest.mark.parametrize("small", [(5, 4), (1, 7), (30, 21), (64, 43)])
def test_features_are_interpolated_as_the_network_does_it(small):
    features = torch.randn(2, 19, *small)
    labels = torch.randint(0, 3, (2, 30, 21))
    large = torch.nn.functional.interpolate(features, (30, 21), mode="bilinear", align_corners=False)
    expected = large.movedim(1, -1).reshape(1260, -1)[:: 1260 // (2 * PER_IMAGE)]
    torch.testing.assert_close(pick_pixels(features, labels, None, 3, per_image=PER_IMAGE).features, expected)


def test_an_image_that_names_little_gives_few_pixels():
    """All that a memory names is one class: as many pixels as of other images would make it seem frequent."""
    labels = torch.full((1, 60, 61), 255)
    labels[0, 20:26] = 2
    targets = pick_pixels(torch.randn(1, 3, 8, 8), labels, None, 3, per_image=PER_IMAGE).targets
    assert len(targets) == pytest.approx(PER_IMAGE / 10, abs=1)
    assert targets[:, 2].all()


@pytest.mark.parametrize("size", [(480, 640), (720, 1280), (96, 96), (5, 7), (300, 1), (1, 900)])
def test_pixels_are_spread_over_columns_and_rows_of_any_size(size):
    height, width = size
    row, column = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    labels = torch.zeros(1, height, width).long()
    features = pick_pixels(torch.stack((row, column))[None], labels, None, 1, per_image=PER_IMAGE).features
    rows, columns = (len(values.unique()) for values in features.unbind(dim=1))
    assert columns >= min(MIN_COLUMNS, width) and rows >= min(height, 90)
    assert min(height * width, PER_IMAGE) <= len(features) < 1.1 * PER_IMAGE + 10


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_all_images_have_the_same_density_however_many_there_are(monkeypatch, count):
    monkeypatch.setattr(sampling, "MAX_PER_IMAGE", 400)
    monkeypatch.setattr(sampling, "MAX_PIXELS", 500)
    model = at_step(small_arch(), 0)
    torch.manual_seed(0)
    labels = [torch.full((1, 33, 33), 1 + number % 2) for number in range(count)]
    pixels = sample_pixels(model, None, [(torch.randn(1, 3, 33, 33), each) for each in labels])
    assert 250 <= len(pixels.features) <= 500
    named = pixels.targets.argmax(dim=1).bincount(minlength=3)
    odd, even = int(named[1]), int(named[2])
    assert odd * (count // 2) == pytest.approx(even * ((count + 1) // 2), rel=0.02)
