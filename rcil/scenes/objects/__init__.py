"""What stands in a generated scene, and how it is drawn."""
