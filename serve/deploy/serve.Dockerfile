# syntax=docker/dockerfile:1
# rcil-serve without torch. Build it from the root of the project:
#   docker build -f serve/deploy/serve.Dockerfile -t rcil-serve .
#   docker build -f serve/deploy/serve.Dockerfile -t rcil-serve:gpu --build-arg EXTRA=gpu .
# docs/containers.md shows how to run it.
ARG PYTHON=3.12

FROM docker.io/library/python:${PYTHON}-slim AS build
ARG EXTRA=cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY rcil rcil
COPY export export
COPY serve serve
RUN python -m venv /opt/rcil \
 && /opt/rcil/bin/pip install --no-cache-dir --constraint constraints.txt ".[serve,sign,${EXTRA}]"

FROM docker.io/library/python:${PYTHON}-slim
COPY --from=build /opt/rcil /opt/rcil
RUN useradd --uid 10001 --create-home rcil && mkdir /data && chown rcil /data
USER 10001
WORKDIR /data
VOLUME /data
# The root may be read-only: only /data, and /tmp for Matplotlib's cache, are written to. No bytecode is stored.
ENV PATH=/opt/rcil/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp/matplotlib
# For the libraries of the GPU build; without NVIDIA's runtime they have no effect.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Answers of `rcil-serve http`. Commands that serve nothing, such as `video`, need --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
STOPSIGNAL SIGTERM
EXPOSE 8000
ENTRYPOINT ["rcil-serve"]
CMD ["--help"]
