"""A model over HTTP: the Open Inference Protocol, plain image upload, metrics, hot reload and a web page."""
