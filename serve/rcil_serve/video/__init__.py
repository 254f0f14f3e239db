"""Video: from any source through a model to files, with every frame accounted for."""
