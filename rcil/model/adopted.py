"""The description of a network of which there is nothing but an ONNX graph; see `rcil-export adopt`.

It can be run, compared and used to label images. It cannot be built, trained or folded. No torch here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rcil.model.foreign import ForeignArchitecture


class AdoptedGraph(ForeignArchitecture):
    """An ONNX file that another program wrote, with our pre- and postprocessing around it."""

    graph: Annotated[str, Field(min_length=1, max_length=300)]
    """Name of the file, without its folder."""
    graph_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Hash of the file."""
    logits: Annotated[str, Field(max_length=1000)]
    """Its output that the masks are made from."""

    @property
    def backbone(self) -> str:
        """The name of the network, for people."""
        return self.graph

    @property
    def rc(self) -> None:
        """There are no RC blocks."""
        return

    @property
    def folded(self) -> bool:
        """It is deployed already."""
        return True

    def replace(self, **changes: object) -> AdoptedGraph:
        """The same: a graph has one form."""
        return self
