"""`rcil-serve images`: masks and overlays of single images."""
