"""Sources of frames: video files, image files, cameras and streams."""

from rcil_serve.stream.frames import Selection, Source
from rcil_serve.stream.sources.open import open_source

__all__ = ["Selection", "Source", "open_source"]
