"""Training whole protocols: a task file in, a checkpoint per step and honest numbers out."""
