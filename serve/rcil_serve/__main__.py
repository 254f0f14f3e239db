"""`python -m rcil_serve`."""

from rcil_serve.cli.app import main

main()
