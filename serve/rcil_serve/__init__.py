"""Running deployed models and showing what they see. Nothing here imports torch."""
