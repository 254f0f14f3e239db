"""The command line of `rcil`, and what the three command lines share."""
