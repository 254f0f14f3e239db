"""Serves a model over HTTP: Open Inference Protocol, image upload, metrics, hot reload and a web page."""
