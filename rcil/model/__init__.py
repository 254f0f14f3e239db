"""The description of a model: architecture, class table, lineage and file header. Nothing here imports torch."""
