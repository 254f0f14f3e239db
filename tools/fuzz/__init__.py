"""Damaged, absurd and hostile inputs for everything that reads a file or a request."""
