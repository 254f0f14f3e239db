"""Two artefacts compared by what they make of images."""
