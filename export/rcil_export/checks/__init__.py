"""Comparison of artefacts: structure, description, outputs on images, and layers."""
