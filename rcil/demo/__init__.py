"""The whole chain on a generated site, on a CPU, in a few minutes.

The demo is the one part of `rcil` that depends on the packages above it: it starts `rcil-export` and `rcil-serve` as
separate processes, exactly as a user would. It imports nothing from them.
"""
