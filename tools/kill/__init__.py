"""Kill tests: programs are killed at random moments, and no finished output may be lost."""
