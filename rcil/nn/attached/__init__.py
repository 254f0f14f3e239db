"""RC for networks of other libraries: build, look at the flow of data, rewrite, grow, fold back."""
