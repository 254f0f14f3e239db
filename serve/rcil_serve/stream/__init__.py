"""Frames from a source through a model to outputs; what video, images, diff and watch build on."""
