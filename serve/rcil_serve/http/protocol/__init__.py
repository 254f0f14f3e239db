"""Requests and responses of the HTTP server: bodies, tensors, messages and errors."""
