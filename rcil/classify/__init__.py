"""Continual classification of whole images: EEIL and PODNet, with and without representation compensation."""
