"""Models of other libraries: attaching them, and checking that everything works with a network."""
