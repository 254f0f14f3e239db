# syntax=docker/dockerfile:1
# Training and export on NVIDIA GPUs. Wheels bring CUDA and cuDNN; the machine needs the driver and NVIDIA's container
# runtime. Build it from the root of the project:
#   docker build -f serve/deploy/train.Dockerfile -t rcil-train .
# docs/containers.md shows how to run it.
ARG PYTHON=3.12

FROM docker.io/library/python:${PYTHON}-slim AS build
ARG EXTRA=gpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY rcil rcil
COPY export export
COPY serve serve
RUN python -m venv /opt/rcil \
 && /opt/rcil/bin/pip install --no-cache-dir --constraint constraints.txt torch \
 && /opt/rcil/bin/pip install --no-cache-dir --constraint constraints.txt ".[train,serve,classify,sign,rtx,${EXTRA}]"

FROM docker.io/library/python:${PYTHON}-slim
COPY --from=build /opt/rcil /opt/rcil
RUN useradd --uid 10001 --create-home rcil && mkdir /data && chown rcil /data
USER 10001
WORKDIR /data
VOLUME /data
# The root may be read-only: only /data, and /tmp for caches, are written to.
ENV PATH=/opt/rcil/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp/matplotlib \
    TORCHINDUCTOR_CACHE_DIR=/tmp/inductor NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# A run is healthy while its interpreter and its packages can be loaded.
HEALTHCHECK --interval=5m --timeout=60s --start-period=60s --retries=2 CMD ["rcil", "--version"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["rcil"]
CMD ["--help"]
