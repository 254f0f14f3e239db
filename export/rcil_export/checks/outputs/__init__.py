"""Comparison of two artefacts by their outputs on images."""
