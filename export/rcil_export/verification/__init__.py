"""`rcil-export verify`: delivered files against a fresh export and against a plain network built without folding."""
