"""Load the newest versions of a model into a busy Triton server: `python load_model.py HOST:PORT MODEL`.

PORT is the one for gRPC. Loading over HTTP blocks one of the server's HTTP threads, and the clients of that thread,
until it ends.
"""

from __future__ import annotations

import sys

from tritonclient.grpc import InferenceServerClient

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    InferenceServerClient(url=sys.argv[1]).load_model(sys.argv[2])
