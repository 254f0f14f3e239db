"""Default class colours."""

from __future__ import annotations


def colour_of(index: int) -> tuple[int, int, int]:
    """The colour of a class id as PASCAL VOC assigns it: bits of the id spread over R, G and B; 0 is black."""
    channels = [0, 0, 0]
    for bit in range(8):
        for channel in range(3):
            channels[channel] |= (index >> channel & 1) << (7 - bit)
        index >>= 3
    return channels[0], channels[1], channels[2]
