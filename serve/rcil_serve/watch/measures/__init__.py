"""What `rcil-serve watch` measures of a model without labels."""
