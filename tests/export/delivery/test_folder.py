"""What is delivered beside a model: card, signature, statements of earlier steps; and the chain that they form."""

import json
import re
import shutil

import pytest
from commands import call
from exports import described
from keys import make_keys

from rcil.checkpoint.file import save
from rcil.core.errors import CheckpointError, ConfigError, TrustError
from rcil.core.files import sha256_of
from rcil.core.signing import sign, verify
from rcil.model.chain import chain_of
from rcil.model.metadata import LineageEntry
from rcil_export.delivery.folder import Signing, earlier_statements
from rcil_export.graph.interface import Interface
from rcil_export.graph.onnx_file import read_onnx
from rcil_export.graph.shapes import InputShape
from rcil_export.request import Request
from rcil_export.run import run_export
from rcil_export.triton.repository import publish

INTERFACE = Interface(shape=InputShape.of(48, 64))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two steps, each delivered and signed by someone else, and a third person's keys."""
    root = tmp_path_factory.mktemp("made")
    first, second = make_keys(root, "first"), make_keys(root, "second")
    make_keys(root, "stranger")
    lineage = ()
    for step, keys in enumerate((first, second)):
        model, metadata = described("resnet18", step)
        before = root / f"step{step - 1}.safetensors"
        entry = LineageEntry(
            step=step,
            source="rcil add-class" if step else "rcil train, yard",
            parent_sha256=sha256_of(before) if step else None,
            data_sha256=f"{step}a" * 32,
            config={"method": {"name": "rcil"}},
            seed=7,
            metrics={"training_images": 40.0, "drop a": 2.5, "drop b": -1.0, "iou new1": 61.0}
            if step
            else {"miou": 0.7},
        )
        lineage = (*lineage, entry)
        save(root / f"step{step}.safetensors", model, metadata.model_copy(update={"lineage": lineage}))
        request = Request(
            root / f"step{step}.safetensors",
            root / f"delivered{step}",
            INTERFACE,
            parent=before if step else None,
            rounds=0,
            triton=root / "models",
            signing=Signing(keys.private, trust=(first.public, second.public)),
        )
        assert run_export(request).ok
    return root


@pytest.fixture
def copy(made, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(made, root)
    return root


def trusted(root):
    return [root / "first.pub", root / "second.pub"]


def test_the_signature_covers_all_and_holds_the_statement_of_the_step_before(made):
    folder = made / "delivered1"
    names = {"model.onnx", "report.html", "report.json", "model_card.md", "step0.sig"}
    assert {path.name for path in folder.iterdir()} == {*names, "model.sig"}
    statement = verify(folder, trusted(made))
    assert set(statement.digests) == names
    assert (folder / "step0.sig").read_bytes() == (made / "delivered0" / "model.sig").read_bytes()
    assert sha256_of(made / "step1.safetensors") in statement.checkpoints
    assert sha256_of(made / "step0.safetensors") not in statement.checkpoints


def test_an_unsigned_export_leaves_nothing_of_the_signed_one(copy):
    request = Request(copy / "step1.safetensors", copy / "delivered1", INTERFACE, rounds=0)
    assert run_export(request).ok
    names = {path.name for path in (copy / "delivered1").iterdir()}
    assert names == {"model.onnx", "report.html", "report.json", "model_card.md"}
    assert "This delivery is not signed." in (copy / "delivered1" / "model_card.md").read_text()


def test_the_card_says_what_is_known_and_what_is_not(made):
    folder = made / "delivered1"
    text = (folder / "model_card.md").read_text()
    for name in ("model.onnx", "report.html", "report.json"):
        assert f"| {name} | {(folder / name).stat().st_size:,} | {sha256_of(folder / name)} |" in text
    assert sha256_of(made / "step1.safetensors") in text
    for c in read_onnx(folder / "model.onnx").metadata.classes:
        assert f"| {c.id} | {c.name} | {c.step} |" in text
    assert f"| 1 | rcil add-class | rcil | new1 | 40 training | {'1a' * 32} |" in text
    assert f"| 0 | rcil train, yard | rcil | background, a, b | not recorded | {'0a' * 32} |" in text
    assert "Lost since the step before: a 2.5 points of IoU; gained: b 1.0." in text
    assert "Mean IoU was not measured: there were no masks." in text
    assert "| Latency against the plain network | not run | – |" in text
    report = json.loads((folder / "report.json").read_text())
    items = [item for result in report["results"] for item in result["items"]]
    rows = re.findall(
        r"^\| .* \| (passed|not decided|for information)(?: \(proved\)| \(measured\))? \| .* \|$", text, re.M
    )
    assert len(rows) == len(items)
    assert rows.count("passed") == sum(item["passed"] is True for item in items)


def test_special_characters_do_not_break_the_card():
    from rcil_export.delivery.card import _table

    assert _table(("a", "b"), [("x|y", "<b>\n*z*")]).splitlines()[-1] == r"| x\|y | \<b\> \*z\* |"


def test_the_chain_of_a_delivery_names_every_signer(made):
    chain = chain_of(made / "delivered1", trusted(made))
    assert chain.problems == ()
    steps = [(link.step, link.source, link.taught, [signed.verified for signed in link.signed]) for link in chain.links]
    assert steps == [
        (0, "rcil train, yard", ("background", "a", "b"), [True]),
        (1, "rcil add-class", ("new1",), [True]),
        (1, "export", (), [True]),
    ]
    signers = [link.signed[0].fingerprint for link in chain.links]
    assert signers[0] != signers[1] == signers[2]
    assert chain.links[1].lost == {"a": 2.5, "b": -1.0} and chain.links[1].images == {"training": 40}
    assert chain.links[0].sha256 == chain.links[1].parent_sha256 == sha256_of(made / "step0.safetensors")


def test_info_shows_the_chain(made, monkeypatch):
    monkeypatch.chdir(made)
    done = call("rcil", "info", "delivered1", "--chain")
    assert done.code == 0, done.err
    assert "step 1: rcil add-class, method rcil, seed 7" in done.out
    assert "lost        a 2.5 points of IoU; gained: b 1.0" in done.out
    assert done.out.count("not verified: no --trust was given") == 3
    document = json.loads(call("rcil", "info", "step1.safetensors", "--chain", "--json").out)
    assert [link["taught"] for link in document["links"]] == [["background", "a", "b"], ["new1"]]
    assert {signed["file"] for signed in document["links"][1]["signed"]} == {"delivered1/model.sig"}
    words = ["--trust", "first.pub", "--trust", "second.pub"]
    assert call("rcil", "info", "step1.safetensors", "--chain", *words).code == 0
    assert call("rcil", "info", "delivered1/model.onnx", "--chain", *words).code == 0


def test_a_chain_that_does_not_verify_has_an_exit_code_of_its_own(copy, monkeypatch):
    monkeypatch.chdir(copy)
    words = ["info", "delivered1", "--chain", "--trust", "second.pub"]
    done = call("rcil", *words)
    assert done.code == 12 and "step 0 (rcil train, yard)" in done.err and "another key" in done.err
    shutil.copy(copy / "delivered1" / "model.sig", copy / "delivered1" / "step0.sig")
    done = call("rcil", *words, "--trust", "first.pub")
    assert done.code == 12 and "step0.sig was changed" in done.err
    assert call("rcil", "info", "step1.safetensors", "--trust", "second.pub").code == 2
    assert call("rcil", "info", "models", "--chain").code == 3


def test_old_checkpoints_have_a_chain_too(tmp_path):
    model, metadata = described("resnet18", 0)
    save(tmp_path / "old.safetensors", model, metadata)
    done = call("rcil", "info", str(tmp_path / "old.safetensors"), "--chain")
    assert done.code == 0 and "no lineage is recorded" in done.out


def test_statements_are_found_by_what_they_say(copy):
    lineage = read_onnx(copy / "delivered1" / "model.onnx").metadata.lineage
    assert set(earlier_statements(lineage, [copy])) == {"step0.sig"}
    sign(copy / "step1.safetensors", copy / "second.pem")
    (copy / "step1.safetensors.sig").rename(copy / "anything.sig")
    found = earlier_statements(lineage, [copy])
    assert {name: s.path.name for name, s in found.items()} == {"step0.sig": "model.sig", "step1.sig": "anything.sig"}
    assert earlier_statements(lineage, [copy / "models"]) == {}
    with pytest.raises(TrustError, match="another key"):
        earlier_statements(lineage, [copy], [copy / "second.pub"])


def test_triton_takes_only_what_verifies(copy, tmp_path):
    model = copy / "delivered1" / "model.onnx"
    metadata = read_onnx(model).metadata
    publish(model, metadata, INTERFACE, tmp_path / "models", name="yard", trust=trusted(copy))
    (copy / "delivered1" / "report.json").write_text("{}")
    with pytest.raises(TrustError, match=r"report\.json was changed"):
        publish(model, metadata, INTERFACE, tmp_path / "models", name="other", trust=trusted(copy))
    assert not (tmp_path / "models" / "other").exists()


def test_the_commands_sign_and_verify(copy, monkeypatch):
    monkeypatch.chdir(copy)
    done = call("rcil-export", "sign", "delivered1", "--key", "stranger.pem", "--json")
    assert done.code == 0 and "model.onnx" in json.loads(done.out)["files"]
    assert call("rcil-export", "verify-signature", "delivered1", "--trust", "stranger.pub").code == 0
    assert call("rcil-export", "verify-signature", "delivered1", "--trust", "second.pub").code == 12
    assert sha256_of(copy / "step1.safetensors") in verify(copy / "delivered1", [copy / "stranger.pub"]).checkpoints
    assert call("rcil-export", "sign", "step0.safetensors", "--key", "first.pem").code == 0
    done = call("rcil-export", "verify-signature", "step0.safetensors", "--trust", "first.pub", "--json")
    assert json.loads(done.out)["statement"].endswith("step0.safetensors.sig")


@pytest.mark.parametrize(
    ("target", "kind", "words"),
    [
        ("none", ConfigError, "does not exist"),
        ("first.pub", ConfigError, "cannot be signed by itself"),
        ("models", ConfigError, "a signed folder holds only what is delivered"),
        ("empty", CheckpointError, "rcil-export did not deliver this folder"),
    ],
)
def test_what_cannot_be_signed_is_named(copy, target, kind, words):
    from rcil_export.delivery.folder import sign_target

    (copy / "empty").mkdir()
    with pytest.raises(kind, match=words):
        sign_target(copy / target, copy / "first.pem")
    assert not list((copy / "empty").iterdir())
