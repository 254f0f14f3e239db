"""Checkpoints: self-describing safetensors files. Importing this package loads no torch."""
