"""An NVIDIA Triton model repository, one version per step.

    REPO/<name>/config.pbtxt            all versions: tensors, batching, a queue that rejects, warm-up
    REPO/<name>/labels.txt              class names of the newest step; line i (from 0) names mask value i
    REPO/<name>/<step>/model.onnx       or model.plan
    REPO/<name>/<step>/step.json        classes of this step, its tensors, sha256 of the model

To serve it, point a production Triton at the folder; nothing else is needed:

    tritonserver --model-repository=REPO --model-control-mode=explicit --load-model=<name>

A new step is published while the server runs, then loaded over gRPC (`tools/triton/load_model.py`). A load over HTTP,
`POST /v2/repository/models/<name>/load`, also works, but HTTP clients that share a thread of the server with it wait
until it ends. With `--model-control-mode=poll` Triton finds new steps by itself. Requests in flight go on; the step
before stays, for clients that name its version; older ones are retired. Requests without a version get the newest step,
and the answer's `model_version` says which step.json explains it.

`model.plan` must be an engine of the TensorRT release inside that Triton; engines of TensorRT-RTX are not served.
"""
