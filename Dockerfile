# The proxy and nothing else: what builds it stays in the first stage, what runs it is stripped of symbols, and compiled,
# for a root that cannot be written keeps no byte code.
#
#   docker build -t compaction-proxy .
#   docker run --read-only --stop-timeout 40 -p 8800:8800 -v compaction:/state compaction-proxy

# To pin the base image by what it holds, and not by its name: --build-arg PYTHON=3.13.18-slim-trixie@sha256:...
# (`docker buildx imagetools inspect python:3.13.18-slim-trixie` prints the digest). The published image's provenance
# names the digest that it was built from.
ARG PYTHON=3.13.18-slim-trixie

FROM python:${PYTHON} AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils
WORKDIR /src
# The optional libraries are part of the lock, so that the image can use any kind of shared state.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/proxy \
 && /opt/proxy/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary :all: -r requirements.lock \
 && python -m pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY proxy ./proxy
# Built with what is locked: an isolated build would fetch the newest of it, and check no hash.
RUN python -m pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheel . \
 && /opt/proxy/bin/pip install --no-cache-dir --no-compile --no-deps /wheel/*.whl \
 && /opt/proxy/bin/pip check \
 && /opt/proxy/bin/pip uninstall --yes pip \
 && find /opt/proxy -name '*.so*' -type f -exec strip --strip-unneeded {} + \
 && python -m compileall -q /opt/proxy
RUN install -d -o 10001 -g 10001 /state

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="compaction-proxy" \
      org.opencontainers.image.description="A transparent proxy that keeps the context of LLM agents short, cheap and whole." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/proxy /opt/proxy
# An empty volume takes its owner from here. All that is written goes into it.
COPY --from=build --chown=10001:10001 /state /state
ENV PATH=/opt/proxy/bin:$PATH PYTHONDONTWRITEBYTECODE=1
# A history of a megabyte is a block that the C library gives back to the kernel after each request, and asks for again
# at the next: half of what such a request costs. Kept, it is 36 MB more of memory.
ENV MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=33554432
USER 10001:10001
VOLUME /state
EXPOSE 8800
# No shell, no curl, and no urllib: that would ask HTTP_PROXY the way to this very container.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["python", "-c", "\
from http.client import HTTPConnection as To\n\
to = To('127.0.0.1', 8800, timeout=2)\n\
to.request('GET', '/health/live')\n\
raise SystemExit(to.getresponse().status != 200)"]
ENTRYPOINT ["compaction-proxy"]
CMD ["serve", "--host", "0.0.0.0", "--state", "/state"]
