"""`python -m rcil_export`."""

from rcil_export.cli.app import main

main()
