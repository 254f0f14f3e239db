import gzip
import zlib

import pytest

from rcil_serve.http.protocol.body import unpacked
from rcil_serve.http.protocol.refusal import RefusalError


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
        pytest.param(gzip.compress(bytes(10_000_000), mtime=0), "gzip", 413, id="gzip-bomb"),
        pytest.param(zlib.compress(bytes(1001)), "deflate", 413, id="deflate-one-too-many"),
        pytest.param(gzip.compress(b"abc", mtime=0)[:-4], "gzip", 400, id="cut"),
        pytest.param(gzip.compress(b"abc", mtime=0) + b"more", "gzip", 400, id="more-follows"),
        pytest.param(b"abc", "gzip", 400, id="not-gzip"),
        pytest.param(b"abc", "br", 415, id="unknown"),
        pytest.param(b"abc", "gzip, gzip", 415, id="twice"),
    ],
)
def test_refuses(body, encoding, status):
    with pytest.raises(RefusalError) as caught:
        unpacked(body, encoding, 1000)
    assert caught.value.status == status
