"""Running an engine on a GPU through the CUDA driver."""
