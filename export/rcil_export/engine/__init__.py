"""TensorRT engines: building, describing and running them, for both flavours of TensorRT."""
