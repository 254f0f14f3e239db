"""`rcil-export verify`: a delivered file against a fresh export and against a twin that was never folded."""
