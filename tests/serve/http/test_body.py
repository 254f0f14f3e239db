import gzip
import zlib

import pytest

from rcil_serve.http.body import unpacked
from rcil_serve.http.refusal import RefusalError


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP ", gzip.compress)]
)
def test_unpacks_what_clients_pack(encoding, pack):
    assert unpacked(pack(b"abc" * 1000), encoding, 3000) == b"abc" * 1000


def test_leaves_plain_bodies_alone():
    body = bytearray(b"abc")
    assert unpacked(body, "", 3) is body
    assert unpacked(body, "identity", 3) is body


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(bytes(10_000_000)), "gzip", 413),
        (zlib.compress(bytes(1001)), "deflate", 413),
        (gzip.compress(b"abc")[:-4], "gzip", 400),
        (gzip.compress(b"abc") + b"more", "gzip", 400),
        (b"abc", "gzip", 400),
        (b"abc", "br", 415),
        (b"abc", "gzip, gzip", 415),
    ],
)
def test_refuses(body, encoding, status):
    with pytest.raises(RefusalError) as caught:
        unpacked(body, encoding, 1000)
    assert caught.value.status == status
