"""Runs a model on images: backends, predictor, geometry and painter."""
