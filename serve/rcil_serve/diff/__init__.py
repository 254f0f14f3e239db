"""Compares two models on one source: what changed between them, as a video, as numbers and as a page."""
