"""The zero-cost certificate: delivered files against a plain network that was built without folding."""
