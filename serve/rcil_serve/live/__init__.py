"""Shows a running stream: pictures with overlay and zones, and a page for browsers (`--view`)."""
