"""Loads the newest versions of a model into a busy Triton server: `python load_model.py HOST:PORT MODEL`.

PORT is the one for gRPC. A load over HTTP keeps one of the server's HTTP threads busy until it ends, and every client
whose connection belongs to that thread waits as long.
"""

from __future__ import annotations

import sys

from tritonclient.grpc import InferenceServerClient

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    InferenceServerClient(url=sys.argv[1]).load_model(sys.argv[2])
