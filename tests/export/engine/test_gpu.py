import ctypes

from rcil_export.engine.gpu import Gpu, find_gpus

CARDS = [(b"NVIDIA GeForce RTX 3090", 8, 6), (b"NVIDIA GeForce RTX 5090", 12, 0)]


class Driver:
    """libcuda with two cards; handles are not the numbers, as on a real machine they need not be."""

    def __init__(self, status=0):
        self.status = status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = len(CARDS)
        return 0

    def cuDeviceGet(self, device, number):
        device._obj.value = 100 + number
        return 0

    def cuDeviceGetName(self, buffer, size, device):
        buffer.value = CARDS[device.value - 100][0]
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = CARDS[device.value - 100][{75: 1, 76: 2}[attribute]]
        return 0


def test_cards_are_named_by_compute_capability(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert find_gpus() == (Gpu("NVIDIA GeForce RTX 3090", "sm86"), Gpu("NVIDIA GeForce RTX 5090", "sm120"))


def test_a_driver_that_does_not_start_has_no_cards(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status=100))
    assert find_gpus() == ()


def test_no_driver_no_cards():
    assert find_gpus("libno-such-driver.so.1") == ()
