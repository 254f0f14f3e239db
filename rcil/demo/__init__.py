"""The whole chain on a generated yard, on a CPU, in a few minutes."""
