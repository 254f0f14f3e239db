"""What can be proved about a delivered model, independently of how it was made."""
