"""Whether the HTTP server keeps to its own schema and to its limits: `python -m tools.schema_check`."""
