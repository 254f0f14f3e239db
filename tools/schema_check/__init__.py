"""Check the HTTP server against its own schema and its limits: `python -m tools.schema_check`."""
