"""Backbones and the DeepLab head."""
