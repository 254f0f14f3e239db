"""Images with masks: site folders, well-known datasets, converters, checks and continual protocols. No torch here."""
