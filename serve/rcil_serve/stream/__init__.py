"""Moves frames from a source through a model to outputs; video, diff and watch build on it."""
