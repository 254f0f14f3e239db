"""Adding a step to a Triton model repository that a server may be reading."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rcil.core.errors import ConfigError, GateError, RcilError, TrustError
from rcil.core.files import building, sha256_of, working_in, write_file
from rcil.core.signing import verify
from rcil.model.metadata import Metadata
from rcil_export.engine.flavour import TITLES
from rcil_export.engine.sidecar import check_unchanged
from rcil_export.graph.interface import Interface
from rcil_export.graph.shapes import Extent
from rcil_export.triton.config import LABELS, MODEL_FILES, Queue, config_text, description_text
from rcil_export.triton.serving import Serving, check_serving
from rcil_export.triton.step_file import (
    FILE_NAME,
    Backend,
    Description,
    Signature,
    StepFile,
    read_step_file,
    signature_of,
)

CONFIG = "config.pbtxt"
BACKENDS: dict[str, Backend] = {".onnx": "onnxruntime", ".plan": "tensorrt", ".engine": "tensorrt"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""A name is a folder below the repository, a part of URLs and a string in config.pbtxt."""
VERSION = re.compile(r"0|[1-9][0-9]*")
ATTIC = re.compile(rf"\.({VERSION.pattern})\.[a-z0-9_]{{8}}\.old")


def publish(
    model: Path,
    metadata: Metadata,
    interface: Interface,
    repository: Path,
    *,
    name: str,
    queue: Queue | None = None,
    serving: Serving | None = None,
    trust: Sequence[Path] = (),
    force: bool = False,
) -> Path:
    """Add a step to `repository` as the version of the same number, step 0 too; returns the version's folder.

    The version is completed under a name that Triton ignores and then renamed, after everything else: a server that
    polls the repository never sees a part of it. All versions share config.pbtxt, so they have one signature and one
    range of batches. The folder of the model is locked meanwhile; a version that a killed process had set aside to
    replace it is restored first.

    Args:
        model: An ONNX file, or a classic TensorRT engine with its sidecar. It is copied.
        metadata: Its step and classes.
        interface: Its input and outputs; an engine has those of its ONNX file.
        repository: The folder that Triton is given; created if it is missing.
        name: Name of the model in the repository, and in the URLs of its clients.
        queue: The queue in front of the model; None: the defaults.
        serving: How Triton runs it; None: the defaults.
        trust: Public keys, one of which must have signed the folder of the model; empty: signatures are not checked.
        force: Replace an existing version, and publish a model that is marked as rejected.
    """
    backend = _backend_of(model)
    signed = verify(model, trust).digests if trust else None
    check_publishable(metadata, interface, repository, name=name, backend=backend, serving=serving, force=force)
    folder = repository / name
    version = folder / str(metadata.step)
    try:
        with working_in(folder):
            _restore(folder)
            check_publishable(metadata, interface, repository, name=name, backend=backend, force=force)
            with _absent_on_error(folder), _appearing(version) as part:
                step = _write_version(part, model, metadata, interface, backend)
                if signed is not None and step.model_sha256 not in signed.values():
                    raise TrustError(f"{model} was changed while it was published", "Try again.")
                if metadata.step >= max(_versions(folder), default=0):
                    _write(folder / LABELS, "".join(f"{c.name}\n" for c in metadata.classes))
                text = config_text(
                    name,
                    step.signature,
                    interface.shape,
                    backend=backend,
                    queue=queue or Queue(),
                    serving=serving,
                    precision=interface.precision,
                    descriptions=descriptions(folder) | described(step),
                )
                _write(folder / CONFIG, text)
    except OSError as error:
        raise RcilError(
            f"cannot write {version}: {error.strerror or error}", "Check free space and permissions."
        ) from error
    return version


def described(step: StepFile) -> dict[int, str]:
    """The description of one version by its number; empty if its file holds none."""
    if step.description is None:
        return {}
    found = step.description.model_dump(mode="json")
    return {step.step: description_text(found["metadata"], found["interface"], step.model_sha256)}


def descriptions(folder: Path) -> dict[int, str]:
    """The descriptions of all versions of a model that are there."""
    found: dict[int, str] = {}
    for path in _versions(folder).values():
        with contextlib.suppress(RcilError):  # a version that cannot be read is not described
            found |= described(read_step_file(path))
    return found


def _write_version(folder: Path, model: Path, metadata: Metadata, interface: Interface, backend: Backend) -> StepFile:
    """Fill the folder of a version: the model, and the file that explains it."""
    target = folder / MODEL_FILES[backend]
    shutil.copyfile(model, target)
    step = StepFile(
        step=metadata.step,
        classes=metadata.classes,
        colour_order=metadata.colour_order,
        backend=backend,
        signature=signature_of(interface, len(metadata.classes)),
        batch=interface.shape.batch,
        model_sha256=sha256_of(target),
        description=Description(metadata=metadata, interface=interface),
    )
    (folder / FILE_NAME).write_text(step.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return step


def check_publishable(
    metadata: Metadata,
    interface: Interface,
    repository: Path,
    *,
    name: str,
    backend: Backend,
    force: bool,
    serving: Serving | None = None,
) -> None:
    """Raise unless `publish` could add a model of this description; nothing is written.

    Args:
        metadata: Its step and classes.
        interface: Its input and outputs.
        repository: The folder that Triton is given; it may be missing.
        name: Name of the model in the repository.
        backend: The backend that will run it.
        force: See `publish`.
        serving: See `publish`.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' cannot be the name of a Triton model",
            "Use letters, digits, '_', '-' and '.', and start with a letter or a digit.",
        )
    if backend == "onnxruntime" and interface.runtime == "cpu":
        raise ConfigError(
            "a graph of `--for cpu` gives wrong masks on GPUs, where Triton runs models if the server has any",
            "Export it with `--for any`.",
        )
    check_serving(serving or Serving(), backend, interface.precision)
    signature = signature_of(interface, len(metadata.classes))
    if metadata.rejected is not None and not force:
        raise GateError(
            f"the model is marked as rejected: {metadata.rejected}",
            "Nothing was written. Teach the class again with other settings, or publish it anyway with --force.",
        )
    folder = repository / name
    there = _versions(folder)
    if metadata.step in there and not force:
        raise RcilError(
            f"{folder / str(metadata.step)} exists already: step {metadata.step} was published before",
            "Publish under another name, or replace that version with --force.",
        )
    others = {step: path for step, path in there.items() if step != metadata.step}
    _check_same_tensors(folder, others, backend, signature, interface.shape.batch)


def _backend_of(model: Path) -> Backend:
    """The backend for the file's suffix; an engine must be one that Triton can run."""
    backend = BACKENDS.get(model.suffix)
    if backend is None:
        raise ConfigError(f"Triton cannot serve {model}", f"Give a file that ends in {', '.join(BACKENDS)}.")
    if not model.is_file():
        raise RcilError(f"{model} does not exist", "Export the checkpoint first.")
    if backend == "tensorrt":
        sidecar = check_unchanged(model)
        if sidecar.flavour != "classic":
            raise ConfigError(
                f"Triton cannot serve {model}: it is an engine of {TITLES[sidecar.flavour]}, not of TensorRT",
                f"Publish {sidecar.onnx_file}, or build the engine with the classic flavour.",
            )
    return backend


def _versions(folder: Path) -> dict[int, Path]:
    """The version folders that Triton sees, and those that are to be restored."""
    if not folder.is_dir():
        return {}
    paths = [*_set_aside(folder).values(), *folder.iterdir()]
    return {int(path.name): path for path in paths if path.is_dir() and VERSION.fullmatch(path.name)}


def _set_aside(folder: Path) -> dict[Path, Path]:
    """The folders `.N.XXXXXXXX.old` of `_appearing`, each with the path of the version N inside."""
    attics = ((path, ATTIC.fullmatch(path.name)) for path in folder.glob(".*.old"))
    return {path: path / found[1] for path, found in attics if found is not None}


def _restore(folder: Path) -> None:
    """Restore versions that were not replaced, because the process was killed between the two renames."""
    for attic, kept in _set_aside(folder).items():
        if kept.exists() and not (folder / kept.name).exists():
            kept.rename(folder / kept.name)
        shutil.rmtree(attic)


def _check_same_tensors(
    folder: Path, others: dict[int, Path], backend: Backend, signature: Signature, batch: Extent
) -> None:
    """One config.pbtxt describes all versions, so a version with other tensors or batches would break the rest."""
    if not others:
        return
    before = read_step_file(others[max(others)])
    if (before.backend, before.signature) != (backend, signature):
        raise RcilError(
            f"{folder} serves {before.backend} with {before.signature}, and this model is {backend} with {signature}",
            "All versions of a Triton model have the same tensors. Export with the same options, or publish under "
            "another name. `logits` have the number of classes in their shape, so they change with every step.",
        )
    if before.batch is not None and (before.batch.low, before.batch.high) != (batch.low, batch.high):
        wanted = f"{before.batch.low}:{before.batch.usual}:{before.batch.high}"
        raise RcilError(
            f"{folder} serves batches of {before.batch.low} to {before.batch.high} images, and this model takes "
            f"{batch.low} to {batch.high}",
            f"All versions share config.pbtxt: export with --batch {wanted}, or publish under another --name.",
        )


@contextlib.contextmanager
def _absent_on_error(folder: Path) -> Iterator[None]:
    """Remove a new model folder on an error, because a model without a version is an error to Triton."""
    new = not folder.exists()
    try:
        yield
    except BaseException:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _appearing(version: Path) -> Iterator[Path]:
    """Like `building`; an older version of the same number is set aside at the last moment, and restored on an error.

    Triton ignores names with a leading dot, whereas it would read `2.part` as version 2.
    """
    if not version.exists():
        with building(version) as part:
            yield part
        return
    with tempfile.TemporaryDirectory(prefix=f".{version.name}.", suffix=".old", dir=version.parent) as attic:
        kept = Path(attic) / version.name
        try:
            with building(version) as part:
                yield part
                version.rename(kept)
        except BaseException:
            if kept.exists() and not version.exists():
                kept.rename(version)
            raise


def _write(path: Path, text: str) -> None:
    write_file(path, text)
