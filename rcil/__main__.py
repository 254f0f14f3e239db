"""`python -m rcil`."""

from rcil.cli import main

main()
