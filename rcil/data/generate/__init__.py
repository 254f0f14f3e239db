"""A procedural site: a yard by a road, with masks, several domains and a clip, deterministic by seed."""

from rcil.data.generate.clip import make_clip
from rcil.data.generate.domains import DOMAINS
from rcil.data.generate.occurrence import CLASSES
from rcil.data.generate.scene import make_scene
from rcil.data.generate.site import SiteSummary, make_site
from rcil.data.generate.types import Scene

__all__ = ["CLASSES", "DOMAINS", "Scene", "SiteSummary", "make_clip", "make_scene", "make_site"]
