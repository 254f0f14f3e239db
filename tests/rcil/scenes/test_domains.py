from dataclasses import replace

import cv2
import numpy as np
import pytest

from rcil.scenes import DOMAINS, make_scene
from rcil.scenes.render import exposure, record


@pytest.fixture(scope="module")
def pictures():
    """[12, H, W, 3] per domain, of the same places."""
    return {name: np.stack([make_scene(1, i, domain=name).image for i in range(12)]) for name in DOMAINS}


def brightness(images):
    return float(images.mean())


def saturation(images):
    return float((images.max(axis=-1).astype(int) - images.min(axis=-1)).mean() / images.mean())


def sharpness(images):
    """Detail that outlives a small blur, so that sensor noise does not count."""
    smooth = [cv2.GaussianBlur(image, (0, 0), 0.8) for image in images]
    return float(np.mean([cv2.Laplacian(image, cv2.CV_32F).std() for image in smooth]))


def flat_field(name, gain):
    """What the camera of a domain makes of an even grey, without rain and lamps."""
    grey = np.full((120, 160, 3), 110, np.float32)
    dry = replace(DOMAINS[name], rain=0, vignette=0.0)
    return record(np.random.default_rng(0), dry, grey, None, gain).astype(np.float32)


def test_night_is_dark(pictures):
    for other in set(DOMAINS) - {"night"}:
        assert brightness(pictures["night"]) < 0.6 * brightness(pictures[other])


@pytest.mark.parametrize("name", DOMAINS)
def test_sensor_noise_has_the_spread_of_the_table(name):
    picture = flat_field(name, 1.0)
    assert picture.std(axis=(0, 1)) == pytest.approx([DOMAINS[name].noise] * 3, rel=0.08)
    assert picture.mean(axis=(0, 1)) == pytest.approx(np.array(DOMAINS[name].cast) * 110, abs=3)


def test_night_is_the_noisiest():
    assert max(DOMAINS, key=lambda name: DOMAINS[name].noise) == "night"


@pytest.mark.parametrize("name", DOMAINS)
def test_exposure_varies_within_a_domain(name):
    """Brightness follows the gain, and gains fill the range of the table."""
    low, high = DOMAINS[name].exposure
    gains = [exposure(np.random.default_rng(i), DOMAINS[name]) for i in range(40)]
    assert low <= min(gains) < low + 0.2 * (high - low) and high - 0.2 * (high - low) < max(gains) <= high
    assert flat_field(name, high).mean() > flat_field(name, low).mean() + 10


def test_night_has_pools_of_light(pictures):
    coarse = [cv2.resize(image, (8, 6), interpolation=cv2.INTER_AREA).mean(axis=2)[2:] for image in pictures["night"]]
    assert np.mean([part.max() / part.min() for part in coarse]) > 2.5


def test_sun_saturates_and_clouds_do_not(pictures):
    assert saturation(pictures["sunny"]) > 1.3 * saturation(pictures["overcast"])


def test_rain_veils_the_distance(pictures):
    def contrast(images):
        return float(np.mean([image[70:110].std() for image in images]))

    assert contrast(pictures["rain"]) < 0.6 * contrast(pictures["sunny"])


def test_rain_streaks_are_upright(pictures):
    sky = pictures["rain"][:, 2:50].astype(np.float32).mean(axis=3)
    across, down = np.abs(np.diff(sky, axis=2)).mean(), np.abs(np.diff(sky, axis=1)).mean()
    calm = pictures["overcast"][:, 2:50].astype(np.float32).mean(axis=3)
    assert across / down > 1.2 * np.abs(np.diff(calm, axis=2)).mean() / np.abs(np.diff(calm, axis=1)).mean()


def test_the_old_camera_is_soft_green_and_dark_in_the_corners(pictures):
    old, new = pictures["oldcam"], pictures["sunny"]
    assert sharpness(old) < 0.6 * sharpness(new)
    green = [float(p[..., 1].mean() / p[..., [0, 2]].mean()) for p in (old, new)]
    assert green[0] > green[1] + 0.08
    corner = [float(p[:, -30:, :40].mean() / p[:, -30:, 140:180].mean()) for p in (old, new)]
    assert corner[0] < corner[1] - 0.15
