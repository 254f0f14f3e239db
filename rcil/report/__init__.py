"""Plots and self-contained HTML pages of evaluations and comparisons."""
