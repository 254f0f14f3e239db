"""Shown, not claimed: the same masks, and no extra cost."""
