"""Export and checks of classifiers of whole images."""
