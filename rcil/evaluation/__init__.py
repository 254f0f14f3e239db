"""Evaluation: mean IoU of old, new and all classes, matched by name."""
