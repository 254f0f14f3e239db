"""Devices, processes and determinism: where and how torch computes."""
