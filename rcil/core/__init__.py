"""Utilities that all three packages use: errors, files, logging, images, masks, drawing. Nothing here imports torch."""
