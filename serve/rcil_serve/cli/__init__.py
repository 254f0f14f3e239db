"""The command line of `rcil-serve`."""
