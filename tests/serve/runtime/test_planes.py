import av
import cv2
import numpy as np
import pytest

from rcil_serve.runtime.planes import ColourSpace, Planes, bytes_of, halved, resized

SPACES = [ColourSpace(matrix, full) for matrix in ("bt601", "bt709") for full in (False, True)]
RANDOM = np.random.default_rng(0)


def smooth_image(height, width):
    return cv2.resize(
        RANDOM.integers(0, 256, (6, 8, 3), dtype=np.uint8), (width, height), interpolation=cv2.INTER_CUBIC
    )


def planes_of(image, space):
    """Planes in one piece of memory."""
    planes = Planes.within(np.empty(bytes_of(image.shape[:2]), np.uint8), image.shape[:2], space)
    Planes.of_rgb(image, space).copy_to(planes)
    return planes


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_colours_are_those_of_the_standards(space):
    """White, black and the primaries of BT.601 and BT.709, as H.273 defines their codes."""
    colours = np.array([[255, 255, 255], [0, 0, 0], [255, 0, 0], [0, 0, 255]])
    found = colours @ space.from_rgb()[:, :3].T + space.from_rgb()[:, 3]
    red, blue = (0.299, 0.114) if space.matrix == "bt601" else (0.2126, 0.0722)
    low, span, swing = (0, 255, 127.5) if space.full_range else (16, 219, 112)
    luma = low + span * np.array([1, 0, red, blue])
    np.testing.assert_allclose(found[:, 0], luma, atol=1e-3)
    np.testing.assert_allclose(found[:2, 1:], 128, atol=1e-3)
    np.testing.assert_allclose([found[2, 2], found[3, 1]], 128 + swing, atol=1e-3)
    np.testing.assert_allclose(found[2, 1], 128 - swing * red / (1 - blue), atol=1e-3)


@pytest.mark.parametrize("size", [(64, 96), (63, 97), (1, 1), (5, 2)])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_rgb_and_back(size, space):
    """Within what rounding and the halved chroma of a smooth image cost; FFmpeg agrees."""
    image = smooth_image(*size)
    planes = planes_of(image, space)
    assert planes.u.shape == ((size[0] + 1) // 2, (size[1] + 1) // 2) and planes.size == size
    difference = np.abs(planes.rgb().astype(int) - image)
    if min(size) > 10:
        assert difference.mean() < 6
    frame = av.VideoFrame(size[1] + size[1] % 2, size[0] + size[0] % 2, "yuv420p")
    for plane, values in zip(frame.planes, (planes.y, planes.u, planes.v), strict=True):
        lines = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        lines[:] = 0
        lines[: values.shape[0], : values.shape[1]] = values
    frame.colorspace, frame.color_range = 1 if space.matrix == "bt709" else 6, 2 if space.full_range else 1
    theirs = frame.to_ndarray(format="rgb24")[: size[0], : size[1]]
    if not any(side % 2 for side in size):  # otherwise FFmpeg interpolates chroma, which padding changes
        assert np.abs(theirs.astype(int) - planes.rgb()).max() <= 3


@pytest.mark.parametrize("target", [(32, 48), (40, 60), (20, 30), (96, 128)])
def test_scaling_planes_is_at_least_as_good_as_scaling_rgb(target):
    """Both are compared with the image before its chroma was halved."""
    image = smooth_image(64, 96)
    planes, expected = planes_of(image, ColourSpace()), resized(image, target).astype(int)
    found, before = (np.abs(a - expected).mean() for a in (planes.scaled(target), resized(planes.rgb(), target)))
    assert found <= before + 0.3 and found < 5


def test_scaling_to_the_same_size_is_the_picture_itself():
    planes = planes_of(smooth_image(64, 96), ColourSpace())
    out = np.zeros((64, 96, 3), np.uint8)
    assert planes.scaled((64, 96), out) is out
    np.testing.assert_array_equal(out, planes.rgb())


def test_chroma_of_half_blocks_is_the_mean_of_what_there_is():
    plane = np.array([[0, 100, 40], [20, 80, 60], [10, 30, 90]], np.uint8)
    np.testing.assert_array_equal(halved(plane), [[50, 50], [20, 90]])


@pytest.mark.parametrize("code", [cv2.ROTATE_90_CLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_COUNTERCLOCKWISE])
def test_turning_planes_is_turning_the_picture(code):
    planes = planes_of(RANDOM.integers(0, 256, (12, 8, 3), dtype=np.uint8), ColourSpace())
    np.testing.assert_array_equal(planes.turned(code).rgb(), cv2.rotate(planes.rgb(), code))
