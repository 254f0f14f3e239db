"""The routes of the HTTP server."""
