"""Statements: what they cover, and how they fail."""

import base64
import json
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from keys import make_keys

from rcil.core.errors import ConfigError, MissingDependencyError, TrustError
from rcil.core.signing import find_statements, key_fingerprint, read_statement, sign, trusted_fingerprint, verify

CHECKPOINT = "ab" * 32


@pytest.fixture
def keys(tmp_path):
    return make_keys(tmp_path)


@pytest.fixture
def delivered(tmp_path, keys):
    folder = tmp_path / "deployed"
    folder.mkdir()
    for name in ("model.onnx", "report.json", "step0.sig"):
        (folder / name).write_text(f"the {name}")
    sign(folder, keys.private, about=f"step 1 of checkpoint sha256:{CHECKPOINT}")
    return folder


def test_a_signed_folder_verifies_as_a_whole_and_by_its_model(delivered, keys):
    for target in (delivered, delivered / "model.onnx"):
        statement = verify(target, [keys.public])
        assert set(statement.digests) == {"model.onnx", "report.json", "step0.sig"}
        assert CHECKPOINT in statement.checkpoints
        assert statement.fingerprint == key_fingerprint(keys.private) == trusted_fingerprint(keys.public)


def test_it_verifies_wherever_it_is_moved_and_through_links(delivered, keys, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.move(delivered, moved)
    (tmp_path / "live").symlink_to(moved)
    (tmp_path / "live.onnx").symlink_to(moved / "model.onnx")
    verify(tmp_path / "live" / "model.onnx", [keys.public])
    verify(tmp_path / "live.onnx", [keys.public])


@pytest.mark.parametrize("name", ["model.onnx", "report.json", "step0.sig"])
def test_every_changed_or_missing_file_is_named(delivered, keys, name):
    (delivered / name).write_text("changed")
    with pytest.raises(TrustError, match=f"{name} was changed"):
        verify(delivered / "model.onnx", [keys.public])
    if name != "model.onnx":
        (delivered / name).unlink()
        with pytest.raises(TrustError, match=f"{name} is missing"):
            verify(delivered / "model.onnx", [keys.public])


@pytest.mark.parametrize("name", ["other.onnx", "sub/evil.so", ".hidden"])
def test_an_added_file_is_named(delivered, keys, name):
    (delivered / name).parent.mkdir(exist_ok=True)
    (delivered / name).write_text("new")
    with pytest.raises(TrustError, match=f"{name} was added"):
        verify(delivered, [keys.public])


def test_a_link_in_the_folder_is_refused(delivered, keys, tmp_path):
    (tmp_path / "outside").write_text("the model.onnx")
    (delivered / "model.onnx").unlink()
    (delivered / "model.onnx").symlink_to(tmp_path / "outside")
    with pytest.raises(TrustError, match="symlink"):
        verify(delivered, [keys.public])


def test_the_report_of_a_later_failed_export_may_lie_there(delivered, keys):
    (delivered / "report.failed.json").write_text("{}")
    verify(delivered, [keys.public])


def test_a_file_that_is_not_in_the_statement_is_not_vouched_for(delivered, keys):
    (delivered / "report.failed.html").write_text("an ignored file")
    with pytest.raises(TrustError, match="not among the files"):
        verify(delivered / "report.failed.html", [keys.public])


def test_one_of_several_trusted_keys_is_enough_and_another_is_refused(delivered, keys, tmp_path):
    other = make_keys(tmp_path, "other")
    verify(delivered, [other.public, keys.public])
    with pytest.raises(TrustError, match="another key") as caught:
        verify(delivered, [other.public])
    assert trusted_fingerprint(keys.public)[:16] in caught.value.message


def test_unsigned_models_are_refused_with_the_remedy(delivered, keys):
    (delivered / "model.sig").unlink()
    with pytest.raises(TrustError, match="not signed") as caught:
        verify(delivered / "model.onnx", [keys.public])
    assert "--sign" in caught.value.hint


def test_a_single_file_has_its_statement_beside_it(tmp_path, keys):
    path = tmp_path / "step0.safetensors"
    path.write_bytes(b"tensors")
    assert sign(path, keys.private).name == "step0.safetensors.sig"
    assert verify(path, [keys.public]).checkpoints
    path.write_bytes(b"other tensors")
    with pytest.raises(TrustError, match=r"step0\.safetensors was changed"):
        verify(path, [keys.public])


def test_an_engine_needs_the_statement_of_its_folder(tmp_path, keys):
    path = tmp_path / "model.engine"
    path.write_bytes(b"plan")
    sign(path, keys.private)
    with pytest.raises(TrustError, match="not signed"):
        verify(path, [keys.public])


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_statement_is_refused(delivered, keys, length):
    path = delivered / "model.sig"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(TrustError, match=r"model\.sig is not a model signing statement"):
        verify(delivered, [keys.public])


def test_a_forged_statement_is_refused(delivered, keys):
    path = delivered / "model.sig"
    bundle = json.loads(path.read_text())
    payload = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    payload["subject"][0]["name"] = f"sha256:{'00' * 32}"
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    path.write_text(json.dumps(bundle))
    with pytest.raises(TrustError, match="does not fit its statement"):
        verify(delivered, [keys.public])


def test_a_statement_that_names_the_trusted_key_but_was_made_with_another_is_refused(delivered, keys, tmp_path):
    other = make_keys(tmp_path, "other")
    sign(delivered, other.private)
    path = delivered / "model.sig"
    bundle = json.loads(path.read_text())
    bundle["verificationMaterial"]["publicKey"]["hint"] = trusted_fingerprint(keys.public)
    path.write_text(json.dumps(bundle))
    with pytest.raises(TrustError, match="does not fit its statement"):
        verify(delivered, [keys.public])


@pytest.mark.parametrize("text", ["[]", "{}", '{"dsseEnvelope": {"payload": "e30="}}', "null", "[" * 100_000])
def test_other_json_is_no_statement(tmp_path, text):
    path = tmp_path / "model.sig"
    path.write_text(text)
    with pytest.raises(TrustError, match="is not a model signing statement"):
        read_statement(path)


def test_the_stock_tool_verifies_it_too(delivered, keys):
    from model_signing import verifying

    check = verifying.Config().use_elliptic_key_verifier(public_key=keys.public)
    check.verify(delivered, delivered / "model.sig")
    (delivered / "report.json").write_text("changed")
    with pytest.raises(ValueError, match=r"report\.json"):
        verifying.Config().use_elliptic_key_verifier(public_key=keys.public).verify(delivered, delivered / "model.sig")


def test_statements_of_the_stock_tool_are_taken(delivered, keys):
    from model_signing import hashing, signing

    (delivered / "model.sig").unlink()
    config = hashing.Config().set_ignored_paths(paths=["model.sig"])
    signer = signing.Config().use_elliptic_key_signer(private_key=keys.private).set_hashing_config(config)
    signer.sign(delivered, delivered / "model.sig")
    verify(delivered, [keys.public])


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_key_with_a_password(tmp_path, delivered, curve):
    locked = make_keys(tmp_path, "locked", "open sesame", curve)
    with pytest.raises(ConfigError, match="protected by a password") as caught:
        sign(delivered, locked.private)
    assert "RCIL_SIGN_PASSWORD" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be opened with this password"):
        sign(delivered, locked.private, password="guess")
    sign(delivered, locked.private, password="open sesame")
    verify(delivered, [locked.public])


def test_bad_keys(tmp_path, keys, delivered):
    (tmp_path / "text.pem").write_text("no key")
    number = rsa.generate_private_key(65537, 1024)
    (tmp_path / "rsa.pem").write_bytes(number.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = number.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "rsa.pub").write_bytes(public)
    koblitz = make_keys(tmp_path, "koblitz", curve=ec.SECP256K1())
    before = (delivered / "model.sig").read_bytes()
    for private, words in {
        tmp_path / "absent.pem": "cannot read the key",
        tmp_path: "cannot read the key",
        tmp_path / "text.pem": "is not a private key",
        keys.public: "is not a private key",
        tmp_path / "rsa.pem": "is not a key of the curves",
        koblitz.private: "is not a key of the curves",
    }.items():
        with pytest.raises(ConfigError, match=words):
            sign(delivered, private)
    for public, words in {
        tmp_path / "absent.pub": "cannot read the key",
        tmp_path / "text.pem": "is not a public key",
        keys.private: "is not a public key",
        tmp_path / "rsa.pub": "is not a key of the curves",
        koblitz.public: "is not a key of the curves",
    }.items():
        with pytest.raises(ConfigError, match=words):
            verify(delivered, [public])
    assert (delivered / "model.sig").read_bytes() == before


def test_a_missing_package_is_named(delivered, keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "model_signing", None)
    for attempt in (lambda: sign(delivered, keys.private), lambda: verify(delivered, [keys.public])):
        with pytest.raises(MissingDependencyError, match="model-signing") as caught:
            attempt()
        assert "rcil[sign]" in caught.value.hint


def test_statements_are_found_beside_files_and_in_delivered_folders(delivered, keys, tmp_path):
    checkpoint = tmp_path / "step0.safetensors"
    checkpoint.write_bytes(b"tensors")
    sign(checkpoint, keys.private)
    (tmp_path / "broken.sig").write_text("x")
    names = {statement.path.name for statement in find_statements([tmp_path])}
    assert names == {"model.sig", "step0.safetensors.sig"}


def test_the_module_is_light():
    heavy = "('torch', 'model_signing', 'cryptography')"
    code = f"import sys, rcil.core.signing; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
