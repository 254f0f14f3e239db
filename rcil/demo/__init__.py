"""The whole chain on a generated yard, on a CPU, in about a minute."""
