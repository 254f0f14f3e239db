"""Two artefacts compared layer by layer."""
