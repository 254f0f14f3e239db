"""What is delivered beside a model: the model card, the signature and earlier statements."""
