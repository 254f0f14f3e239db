"""`python -m rcil_export`."""

from rcil_export.cli import main

main()
