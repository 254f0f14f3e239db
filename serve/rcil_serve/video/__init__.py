"""`rcil-serve video`: segments a video, camera or stream and writes the results to files."""
