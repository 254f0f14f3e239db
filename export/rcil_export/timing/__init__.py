"""Interleaved timing, peak memory and benchmarks."""
