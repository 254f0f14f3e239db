import torch
from networks import at_step, small_arch

from rcil.methods.pixels import CHANNELS, PER_IMAGE, pick_pixels


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
    known = (labels != 255).flatten()
    every = max(1, int(known.sum()) // (2 * PER_IMAGE))
    expected = maps.logits.movedim(1, -1).reshape(-1, 3)[known][::every]
    torch.testing.assert_close(logits, expected)
    named = labels.flatten()[known][::every]
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
