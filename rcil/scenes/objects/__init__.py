"""The objects of a generated scene, and how they are drawn."""
