import pytest
import torch
from networks import at_step, small_arch

from rcil.methods.pixels import CHANNELS, MIN_COLUMNS, PER_IMAGE, pick_pixels


def test_picked_pixels_are_what_the_classifier_reads_and_what_is_known_of_them():
    model = at_step(small_arch(), 0).eval()
    torch.manual_seed(0)
    images = torch.randn(2, 3, 33, 33)
    labels = torch.tensor([0, 0, 3, 1, 255])[torch.randint(0, 5, (2, 33, 33))]
    with torch.no_grad():
        maps = model(images, maps="after")
        pixels = pick_pixels(maps.decoder, labels, maps.logits, 4)
        weight, bias = model.classifier.rows()
        logits = pixels.features @ weight.flatten(1).T + bias
    every = labels.numel() // (2 * PER_IMAGE)
    assert every == 3
    known = (labels != 255).flatten()[::every]
    expected = maps.logits.movedim(1, -1).reshape(-1, 3)[::every][known]
    torch.testing.assert_close(logits, expected)
    named = labels.flatten()[::every][known]
    assert torch.equal(pixels.targets[named != 0].argmax(dim=1), named[named != 0])
    torch.testing.assert_close(pixels.targets[named == 0][:, :3], expected[named == 0].softmax(dim=1))
    assert not pixels.targets[named == 0][:, 3].any()
    meant = pick_pixels(maps.decoder, labels, None, 4)
    assert torch.equal(meant.targets.argmax(dim=1), named)


def test_channels_keep_their_order_however_many_are_interpolated_at_a_time():
    features = torch.randn(2, 2 * CHANNELS + 3, 5, 4)
    labels = torch.randint(0, 3, (2, 30, 20))
    large = torch.nn.functional.interpolate(features, (30, 20), mode="bilinear", align_corners=False)
    expected = large.movedim(1, -1).reshape(1200, -1)[:: 1200 // (2 * PER_IMAGE)]
    torch.testing.assert_close(pick_pixels(features, labels, None, 3).features, expected)


def test_an_image_that_names_little_gives_few_pixels():
    """All that a memory names is one class: as many pixels as of other images would make it seem frequent."""
    labels = torch.full((1, 60, 61), 255)
    labels[0, 20:26] = 2
    targets = pick_pixels(torch.randn(1, 3, 8, 8), labels, None, 3).targets
    assert len(targets) == pytest.approx(PER_IMAGE / 10, abs=1)
    assert targets[:, 2].all()


@pytest.mark.parametrize("size", [(480, 640), (720, 1280), (96, 96), (5, 7), (300, 1), (1, 900)])
def test_pixels_are_spread_over_columns_and_rows_of_any_size(size):
    height, width = size
    row, column = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    features = pick_pixels(torch.stack((row, column))[None], torch.zeros(1, height, width).long(), None, 1).features
    rows, columns = (len(values.unique()) for values in features.unbind(dim=1))
    assert columns >= min(MIN_COLUMNS, width) and rows >= min(height, 90)
    assert min(height * width, PER_IMAGE) <= len(features) < 1.1 * PER_IMAGE + 10
