"""Plots and self-contained HTML pages of what evaluation and comparison computed."""
