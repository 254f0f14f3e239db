"""What an exported file is and says, against the checkpoint that it was made from; nothing is run."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rcil.core.files import sha256_of
from rcil.model.metadata import Metadata
from rcil_export.check.result import Result
from rcil_export.check.structure.check import structure_result
from rcil_export.check.structure.description_match import description_result
from rcil_export.graph.description import parse_any_description
from rcil_export.graph.onnx_file import load_document, texts_of
from rcil_export.stages import part


def check_document(
    graph: Path, checkpoint: Path, metadata: Metadata, *, kept: Collection[str] = ()
) -> tuple[Result, Result]:
    """Structure and description of an ONNX file, as read back from the disk.

    Args:
        graph: The file.
        checkpoint: What it was made from.
        metadata: The checkpoint's description.
        kept: Convs that the conversion left in fp32 on purpose.
    """
    with part("structure"):
        document = load_document(graph)
        found = parse_any_description(texts_of(document), graph)
        structure = structure_result(graph.name, document, *found, checkpoint=metadata, kept=kept)
        del document
    with part("description"):
        hashes = [sha256_of(checkpoint)]
        return structure, description_result(graph.name, found.metadata, checkpoint.name, metadata, hashes)
