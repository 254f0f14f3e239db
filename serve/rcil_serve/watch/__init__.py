"""Watching a model at work without labels: what it forgets, and whether a newer one may take its place."""
