"""Fuzzing: damaged and hostile inputs for everything that reads a file or a request."""
