"""Many small scenes, made once: statistics need numbers, not pixels."""

import pytest

from rcil.scenes import make_scene

SMALL = (96, 128)


@pytest.fixture(scope="session")
def masks():
    return [make_scene(5, index, size=SMALL, domain="overcast").mask for index in range(300)]
