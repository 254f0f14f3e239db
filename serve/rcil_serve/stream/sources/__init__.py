"""Sources of frames: video files, image files, cameras and streams."""

from rcil_serve.stream.sources.open import open_source
from rcil_serve.stream.sources.protocol import Selection, Source

__all__ = ["Selection", "Source", "open_source"]
