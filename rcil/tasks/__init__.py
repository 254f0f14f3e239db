"""Task files: their sections, the recipes behind their defaults, and the images of every step."""
