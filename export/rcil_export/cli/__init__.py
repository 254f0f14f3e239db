"""The command line of `rcil-export`."""
