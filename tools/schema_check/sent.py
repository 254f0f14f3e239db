"""Nearly valid requests, because random bytes would never pass the first check."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import cv2
import numpy as np
from hypothesis import strategies as st

HEADER_LENGTH = "Inference-Header-Content-Length"
NUMBERS = st.one_of(st.integers(-300, 300), st.floats(), st.none(), st.booleans(), st.text(max_size=3))


def photograph(height: int, width: int, suffix: str) -> bytes:
    """Encode a small image."""
    rng = np.random.default_rng(height * 1000 + width)
    return cv2.imencode(suffix, rng.integers(0, 256, (height, width, 3), np.uint8))[1].tobytes()


@st.composite
def pictures(draw: st.DrawFn) -> bytes:
    """PNG and JPEG files: intact, truncated, with a changed bit, or with another size in the header."""
    suffix = draw(st.sampled_from((".png", ".jpg")))
    data = bytearray(photograph(draw(st.integers(1, 80)), draw(st.integers(1, 80)), suffix))
    match draw(st.sampled_from(("whole", "cut", "changed", "resized"))):
        case "cut":
            del data[draw(st.integers(0, len(data))) :]
        case "changed":
            index = draw(st.integers(0, len(data) - 1))
            data[index] ^= draw(st.integers(1, 255))
        case "resized" if suffix == ".png":
            sides = st.sampled_from((0, 1, 65, 5000, 2**20, 2**31 - 1, 2**32 - 1))
            data[16:24] = struct.pack(">II", draw(sides), draw(sides))
    return bytes(data)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    """JSON of an inference request, valid or with one mistake."""
    shape = [draw(st.integers(1, 5)), 16, 16, 3]
    count = int(np.prod(shape))
    sent: dict[str, Any] = {"name": "image", "datatype": "UINT8", "shape": shape, "data": [7] * count}
    document: dict[str, Any] = {"id": draw(st.text(max_size=5)), "inputs": [sent]}
    match draw(st.sampled_from(("nothing", "shape", "data", "type", "outputs", "inputs", "parameters"))):
        case "shape":
            sent["shape"] = draw(st.lists(st.integers(-2, 10**20), max_size=10))
        case "data":
            sent["data"] = draw(st.one_of(st.lists(NUMBERS, max_size=9), NUMBERS, st.lists(st.lists(NUMBERS))))
        case "type":
            sent["datatype"] = draw(st.sampled_from(("FP32", "BYTES", "", "INT64")))
        case "outputs":
            names = st.sampled_from(("mask", "confidence", "logits", ""))
            document["outputs"] = draw(st.lists(st.fixed_dictionaries({"name": names}), max_size=4))
        case "inputs":
            document["inputs"] = draw(st.sampled_from(([], [sent, sent], None, [{}], "image")))
        case "parameters":
            kinds = st.dictionaries(st.sampled_from(("binary_data_size", "binary_data_output")), NUMBERS)
            document["parameters"], sent["parameters"] = draw(kinds), draw(kinds)
    return document


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """Body and headers of an inference request: JSON alone, followed by bytes, or compressed."""
    document = draw(tensors())
    headers: dict[str, str] = {}
    form = draw(st.sampled_from(("json", "binary", "packed")))
    if form != "binary":
        body = json.dumps(document).encode()
    else:
        values = bytes(768) if draw(st.booleans()) else draw(st.binary(max_size=20))
        for sent in (one for one in document["inputs"] or () if isinstance(one, dict)):
            sent.pop("data", None)
            sent["parameters"] = {"binary_data_size": len(values)}
        header = json.dumps(document).encode()
        lengths = st.sampled_from((str(len(header)), "0", "-1", "", "9" * 20, "1" * 5000, "٣", "1.0"))
        headers[HEADER_LENGTH] = draw(lengths) if draw(st.booleans()) else str(len(header))
        body = header + values
    if form == "packed":
        headers["Content-Encoding"] = draw(st.sampled_from(("gzip", "deflate", "br", "")))
        body = gzip.compress(body, mtime=0)
    return body, {name: value for name, value in headers.items() if value.isascii()}
