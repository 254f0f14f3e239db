"""`python -m rcil_serve`."""

from rcil_serve.cli import main

main()
