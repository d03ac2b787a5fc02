# The service as an image: docker build -t nnhal .
#
# docker run -p 50051:50051 -v nnhal:/var/lib/nnhal -v ./nnhal.toml:/etc/nnhal/nnhal.toml:ro --read-only --tmpfs /tmp nnhal
#
# docs/running.md describes the settings. The service needs TLS in them; `nnhal serve --insecure` does without, where every
# client is trusted. `python -m tools.dev.container_lock` updates the pinned packages.

# Pin the base of images for others: --build-arg BASE=debian@sha256:...
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/nnhal
COPY deploy/container/build.lock deploy/container/requirements.lock /source/deploy/container/
WORKDIR /source
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
# Each package is checked against its hash, those for the build too.
RUN /opt/build/bin/pip install --require-hashes -r deploy/container/build.lock
RUN /opt/build/bin/pip --python /opt/nnhal/bin/python install --no-compile --require-hashes -r deploy/container/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY client ./client
COPY driver ./driver
COPY cache ./cache
COPY service ./service
COPY tools ./tools
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && /opt/build/bin/pip --python /opt/nnhal/bin/python install --no-compile --no-index --no-deps /tmp/wheels/*.whl
COPY deploy/container/healthcheck /opt/nnhal/bin/healthcheck
RUN rm -rf /opt/nnhal/lib/python3*/site-packages/*/tests /opt/nnhal/lib/python3*/site-packages/numpy/*/tests
# Compiled modules that are valid whatever the times of their sources: builds at other times have the same bytes. Packages
# may have files that are templates of modules, which cannot be compiled.
RUN /opt/nnhal/bin/python -m compileall -qq --invalidation-mode unchecked-hash /opt/nnhal/lib || true

FROM ${BASE}
# For GpuAcc: --build-arg GPU_PACKAGES=libvulkan1, for Intel and AMD "libvulkan1 mesa-vulkan-drivers" (docs/gpu.md).
ARG GPU_PACKAGES=
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 ${GPU_PACKAGES} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/* /usr/share/doc/* \
    && mkdir -p /etc/nnhal /var/lib/nnhal && chmod 1777 /var/lib/nnhal
COPY --from=build /opt/nnhal /opt/nnhal
# Everything that the service keeps is on the volume: the cache with its key, figures, the quarantine. Any user works, but
# always the same one, since only the owner can read the cache. Plug-ins: /usr/local/share/nnhal/backends.
ENV PATH=/opt/nnhal/bin:${PATH} \
    HOME=/var/lib/nnhal \
    XDG_CACHE_HOME=/var/lib/nnhal/cache \
    XDG_STATE_HOME=/var/lib/nnhal/state \
    XDG_DATA_HOME=/usr/local/share \
    NNHAL_LISTEN=0.0.0.0:50051,unix:/tmp/nnhal.sock \
    NNHAL_LOG_FORMAT=json \
    PYTHONUNBUFFERED=1
VOLUME /var/lib/nnhal
# nnhal.toml in here is read.
WORKDIR /etc/nnhal
# A number that is not root, so that Kubernetes can tell.
USER 10001:10001
EXPOSE 50051
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["healthcheck"]
ENTRYPOINT ["nnhal"]
CMD ["serve"]
