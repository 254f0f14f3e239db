"""Signing keys for tests."""

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


class Keys(NamedTuple):
    """Two files that belong together."""

    private: Path
    public: Path


def make_keys(folder: Path, name: str = "key", password: str | None = None, curve: ec.EllipticCurve | None = None):
    """A new pair in `folder`."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    locked = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    pair = Keys(folder / f"{name}.pem", folder / f"{name}.pub")
    pair.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    pair.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return pair
