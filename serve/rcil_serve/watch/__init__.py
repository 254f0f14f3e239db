"""Watches a deployed model without labels: detects forgetting, and decides whether a new step may replace it."""
