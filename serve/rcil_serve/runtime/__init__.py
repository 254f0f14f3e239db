"""From an image to a mask: backends, predictor, geometry and painter."""
