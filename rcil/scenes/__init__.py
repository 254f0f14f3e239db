"""A procedural scene generator: images of a yard by a road with masks, in several domains, deterministic by seed."""

from rcil.scenes.clip import make_clip
from rcil.scenes.domains import DOMAINS
from rcil.scenes.occurrence import CLASSES
from rcil.scenes.scene import Scene, make_scene
from rcil.scenes.site import SiteSummary, make_site

__all__ = ["CLASSES", "DOMAINS", "Scene", "SiteSummary", "make_clip", "make_scene", "make_site"]
