"""Measures of a model that need no labels: agreement, drift and flicker."""
