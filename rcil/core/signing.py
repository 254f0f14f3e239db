"""Signed statements about models: OpenSSF model signing with local keys, offline. No torch here.

A delivered folder has one statement, `model.sig`, over all of its files; a single file has one beside it, `NAME.sig`.
A statement names the checkpoint that the model was made from by its sha256. A delivered folder also holds the
statements of earlier steps as `step0.sig`, `step1.sig` and so on. They are signed like any other file, so the newest
statement covers the whole chain.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rcil.core.errors import ConfigError, MissingDependencyError, RcilError, TrustError, first_line
from rcil.core.files import sha256_of, write_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec
    from model_signing.manifest import Manifest

SIGNATURE_NAME = "model.sig"
"""The statement of a delivered folder."""
PARENT_NAME = re.compile(r"step\d+\.sig")
"""The statements of earlier steps in a delivered folder."""
FAILED_REPORTS = ("report.failed.json", "report.failed.html")
"""Files of a later export that failed. A signed folder may contain them unsigned."""
CURVES = ("secp256r1", "secp384r1", "secp521r1")
SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
SINGLE_FILE = "."
"""The name of the file in a statement over a single file."""
MAX_STATEMENT = 2**22
NEW_KEY = "openssl ecparam -name prime256v1 -genkey -noout -out key.pem"
PUBLIC_PART = "openssl ec -in key.pem -pubout -out key.pub"


@dataclass(frozen=True)
class Statement:
    """What a signature file says. Reading it verifies nothing."""

    path: Path
    fingerprint: str
    """SHA-256 of the public key in PEM form: who signed."""
    subject: str
    digests: dict[str, str]
    """SHA-256 of every signed file, by its path relative to the folder."""
    ignored: tuple[str, ...]
    """Files that may be in the folder without being signed."""

    @property
    def checkpoints(self) -> frozenset[str]:
        """SHA-256 of what the statement is about: the checkpoint that a delivery came from, or the signed files."""
        return frozenset((*SHA256.findall(self.subject), *self.digests.values()))


def key_fingerprint(key: Path, password: str | None = None) -> str:
    """The fingerprint of the public part of a private key; raises for a key that cannot sign."""
    return _fingerprint(_private_key(key, password).public_key())


def trusted_fingerprint(key: Path) -> str:
    """The fingerprint of a public key; raises if the file is not a public key."""
    return _fingerprint(_public_key(key))


def sign(target: Path, key: Path, *, about: str = "", password: str | None = None, into: Path | None = None) -> Path:
    """Write the statement of a folder over all of its files, or that of a single file; returns its path.

    Args:
        target: A delivered folder, or a file.
        key: EC private key, PEM.
        about: What is signed; a checkpoint is named as `sha256:<hex digest>`. By default the name of `target`.
        password: Password of the key.
        into: Where the statement goes; `signature_path(target)` by default.
    """
    _private_key(key, password)
    _require_package()
    from model_signing import signing

    path = into or signature_path(target)
    secret = None if password is None else password.encode()
    config: Any = signing.Config()  # type: ignore[no-untyped-call]
    config.use_elliptic_key_signer(private_key=key, password=secret).set_hashing_config(_Named(about or target.name))
    with tempfile.TemporaryDirectory() as elsewhere:  # a part of the statement in the folder would be signed too
        made = Path(elsewhere) / SIGNATURE_NAME
        try:
            config.sign(target.resolve(), made)
        except ValueError as error:
            raise RcilError(f"cannot sign {target}: {first_line(error)}", "Remove what cannot be signed.") from error
        write_file(path, made.read_bytes())
    return path


def signature_path(target: Path) -> Path:
    """Where the statement of a folder, or of a single file, lies."""
    return target / SIGNATURE_NAME if target.is_dir() else target.with_name(f"{target.name}.sig")


def statement_of(model: Path) -> Path:
    """The signature file of a model file or a delivered folder; raises if there is none.

    A file in a delivered folder is covered by the folder's statement, which also covers its sidecar and report. An
    engine always needs that one, because its classes are in the sidecar.
    """
    real = model.resolve()
    if not real.exists():
        raise TrustError(f"cannot verify {model}: it does not exist", "Check the path.")
    beside = [signature_path(real)] if real.is_dir() else [real.parent / SIGNATURE_NAME]
    if real.suffix in (".onnx", ".safetensors") and real.is_file():
        beside.append(signature_path(real))
    for path in beside:
        if path.is_file():
            return path
    raise TrustError(
        f"{model} is not signed: there is no {' and no '.join(path.name for path in beside)} beside it",
        "Export it with --sign KEY, or sign it with `rcil-export sign`.",
    )


def verify(model: Path, keys: Sequence[Path]) -> Statement:
    """The statement about a model file or a delivered folder; raises unless one of `keys` signed it.

    Every file of a delivered folder must be as it was signed, and there must be no other.

    Args:
        model: A model file, or the folder it was delivered in.
        keys: Public keys that are trusted, PEM.
    """
    path = statement_of(model)
    statement = authenticate(path, keys)
    single = path.name != SIGNATURE_NAME
    root = model.resolve() if single or model.is_dir() else path.parent
    name = SINGLE_FILE if single else model.resolve().name
    if not model.is_dir() and name not in statement.digests:
        raise TrustError(f"{model} is not among the files that {path} signs", "Deliver the signed file, or sign again.")
    problems = _differences(root, statement)
    if problems:
        raise TrustError(
            f"{path} does not match the files: {'; '.join(problems)}",
            "Restore the delivered files, or export and sign them again.",
        )
    return statement


def authenticate(path: Path, keys: Sequence[Path]) -> Statement:
    """The statement in a signature file; raises unless one of `keys` signed it. The signed files are not read."""
    statement = read_statement(path)
    known = {trusted_fingerprint(key): key for key in keys}
    key = known.get(statement.fingerprint)
    if key is None:
        raise TrustError(
            f"{path} was made with another key: {statement.fingerprint[:16]}…, trusted: "
            f"{', '.join(f'{name[:16]}…' for name in known)}",
            "Name the signer's public key with --trust, or do not use this model.",
        )
    _require_package()
    from cryptography.exceptions import InvalidSignature
    from model_signing._signing import sign_ec_key, sign_sigstore_pb

    try:
        sign_ec_key.Verifier(key).verify(sign_sigstore_pb.Signature.read(path))
    except (InvalidSignature, ValueError, KeyError, TypeError, IndexError) as error:
        raise TrustError(
            f"the signature in {path} does not fit its statement: it was changed after signing",
            "Restore the file, or sign the model again.",
        ) from error
    return statement


def read_statement(path: Path) -> Statement:
    """What a signature file says; nothing is verified."""
    try:
        if path.stat().st_size > MAX_STATEMENT:
            raise ValueError
        bundle = json.loads(path.read_bytes())
        payload = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True))
        how = payload["predicate"]["serialization"]
        if how["method"] != "files" or how["hash_type"] != "sha256":
            raise ValueError
        return Statement(
            path=path,
            fingerprint=_text(bundle["verificationMaterial"]["publicKey"]["hint"]),
            subject=_text(payload["subject"][0]["name"]),
            digests={_text(item["name"]): _text(item["digest"]) for item in payload["predicate"]["resources"]},
            ignored=tuple(_text(name) for name in how.get("ignore_paths", ())),
        )
    except OSError as error:
        raise TrustError(f"cannot read {path}: {error.strerror}", "Check the path.") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise TrustError(
            f"{path} is not a model signing statement, or it is damaged",
            "Restore the file, or sign the model again with `rcil-export sign`.",
        ) from error


def find_statements(folders: Iterable[Path]) -> list[Statement]:
    """The statements in these folders and in delivered folders right below them; other files are skipped."""
    paths = [path for folder in folders for pattern in ("*.sig", "*/*.sig") for path in sorted(folder.glob(pattern))]
    found = []
    for path in dict.fromkeys(paths):
        try:
            found.append(read_statement(path))
        except TrustError:
            continue
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _differences(root: Path, statement: Statement) -> list[str]:
    """Differences from what was signed, one text per file."""
    try:
        found = _hashed(root, statement.ignored)
    except (ValueError, OSError) as error:
        return [first_line(error)]
    signed = statement.digests
    shown = {name: root.name if name == SINGLE_FILE else name for name in (*found, *signed)}
    changed = [f"{shown[name]} was changed" for name in found if name in signed and found[name] != signed[name]]
    added = [f"{shown[name]} was added" for name in found if name not in signed]
    return [*changed, *added, *(f"{shown[name]} is missing" for name in signed if name not in found)]


def _hashed(root: Path, ignored: Iterable[str]) -> dict[str, str]:
    """SHA-256 of a file, or of every file in a folder, by relative path."""
    if root.is_file():
        return {SINGLE_FILE: sha256_of(root)}
    return {item.identifier: item.digest.digest_hex for item in _manifest(root, ignored).resource_descriptors()}


def _manifest(root: Path, ignored: Iterable[str]) -> Manifest:
    from model_signing import hashing

    config = hashing.Config()  # type: ignore[no-untyped-call]
    return config.set_ignored_paths(paths=[Path(name) for name in ignored], ignore_git_paths=False).hash(root)


class _Named:
    """Hashes like `hashing.Config`, but names the result after the subject of the statement, not after the folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def hash(self, root: Path) -> Manifest:
        from model_signing.manifest import FileManifestItem, Manifest, SerializationType

        found = _manifest(root, (SIGNATURE_NAME, *FAILED_REPORTS))
        items = [
            FileManifestItem(path=Path(item.identifier), digest=item.digest) for item in found.resource_descriptors()
        ]
        return Manifest(self._name, items, SerializationType.from_args(found.serialization_type))


def _require_package() -> None:
    try:
        import model_signing  # noqa: F401
    except ImportError as error:
        raise _missing() from error


def _missing() -> MissingDependencyError:
    return MissingDependencyError(
        "signatures need the package model-signing, which is not installed", "Install it with: pip install 'rcil[sign]'"
    )


def _private_key(path: Path, password: str | None) -> ec.EllipticCurvePrivateKey:
    hint = f"Make one with: {NEW_KEY}"
    try:
        key = _load_key(path, "private", hint, None if password is None else password.encode())
    except TypeError as error:
        wrong = "is protected by a password" if password is None else "has no password, and one was given"
        remedy = "Give the password in the environment variable RCIL_SIGN_PASSWORD."
        raise ConfigError(f"the key {path} {wrong}", remedy if password is None else "Leave it out.") from error
    return cast("ec.EllipticCurvePrivateKey", key)


def _public_key(path: Path) -> ec.EllipticCurvePublicKey:
    key = _load_key(path, "public", f"Take the public part of the signing key: {PUBLIC_PART}")
    return cast("ec.EllipticCurvePublicKey", key)


def _load_key(path: Path, kind: Literal["private", "public"], hint: str, password: bytes | None = None) -> object:
    """A key from a PEM file; raises a TypeError if it has a password and none is given, or the other way round."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError as error:
        raise _missing() from error
    try:
        data = path.read_bytes()
        key = load_pem_public_key(data) if kind == "public" else load_pem_private_key(data, password)
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}", "Check the path.") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if password is not None:
            raise ConfigError(f"the key {path} cannot be opened with this password", "Check both.") from error
        raise ConfigError(f"{path} is not a {kind} key in PEM form", hint) from error
    elliptic = ec.EllipticCurvePublicKey if kind == "public" else ec.EllipticCurvePrivateKey
    if not isinstance(key, elliptic) or key.curve.name not in CURVES:
        raise ConfigError(f"{path} is not a key of the curves {', '.join(CURVES)}", hint)
    return key


def _fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the PEM form, which model signing uses to name a key."""
    import hashlib

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
