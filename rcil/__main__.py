"""`python -m rcil`."""

from rcil.cli.app import main

main()
