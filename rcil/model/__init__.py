"""What a model is, as data: architecture, class table, lineage and file header. Nothing here imports torch."""
