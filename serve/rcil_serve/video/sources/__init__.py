"""Where frames come from."""

from rcil_serve.video.sources.open import open_source
from rcil_serve.video.sources.protocol import Selection, Source

__all__ = ["Selection", "Source", "open_source"]
