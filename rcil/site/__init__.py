"""Teaching a deployed model one more class: checks before, training, and what it forgot afterwards."""
