"""Outputs of a run: videos, masks, records, timelines and receipts."""
