"""Runs deployed models on images, video and HTTP requests. Nothing here imports torch."""
