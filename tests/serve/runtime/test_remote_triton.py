"""Models on a real Triton server; `RCIL_TRITON` names the folder that keeps the server between runs."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from servers import ANY_SIZE, NAMES, picture, rows_of, write_model
from triton_server import metadata_of, running, server_folder

from rcil_export.triton.config import Queue
from rcil_export.triton.repository import publish
from rcil_serve.runtime import remote_backend
from rcil_serve.runtime.backends import open_backend
from rcil_serve.runtime.predictor import Layout, Predictor

pytestmark = pytest.mark.slow


def test_a_run_survives_a_restart_of_the_server(request, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_backend, "PAUSES", (0.2,))
    folder, repository = server_folder(request), tmp_path / "models"
    for step in (1, 2):
        model = write_model(tmp_path / f"{step}.onnx", step, ANY_SIZE)
        metadata = metadata_of(NAMES[: step + 1])
        publish(model, metadata, ANY_SIZE, repository, name="yard", queue=Queue(timeout_ms=60_000))
    with running(folder, repository, tmp_path / "first.log") as server:
        server.load("yard")
        new, old = (open_backend(Path(f"triton://{server.url}/yard{version}")) for version in ("", "/1"))
        assert (new.metadata.step, old.metadata.step) == (2, 1)
        assert [c.name for c in new.metadata.classes] == ["background", "road", "cone", "ball"]
        images = [picture(seed, 40, 64) for seed in range(6)]
        for backend, step in ((new, 2), (old, 1)):
            found = Predictor(backend, Layout(batch=4)).segment_all(images)
            for image, one in zip(images, found, strict=True):
                np.testing.assert_array_equal(one.mask, rows_of(image, step))
                assert one.confidence is not None
            for connection in backend._connections:
                connection.close()  # the server waits 20 s for connections when it stops
    found, begun = [], time.monotonic()
    waiting = threading.Thread(target=lambda: found.append(new.run(images[0][None])))
    waiting.start()
    with running(folder, repository, tmp_path / "second.log", port=int(server.url.rpartition(":")[2])) as again:
        time.sleep(1)
        assert not found, "the server is back, and the model is not loaded yet"
        again.load("yard")
        waiting.join(60)
        for connection in new._connections:
            connection.close()
    np.testing.assert_array_equal(found[0].mask[0], rows_of(images[0], 2))
    assert time.monotonic() - begun > 1
    for backend in (new, old):
        backend.close()
