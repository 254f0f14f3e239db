"""Labels for new images: frames worth labelling, and masks that a model draws for correction."""
