"""Export and comparison of classifiers of whole images."""
