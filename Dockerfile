# The service as an image: docker build -t nnhal . && docker run -p 50051:50051 nnhal
#
# It has no TLS and no identities (--insecure): publish the port only where every client is trusted.
#
# Every path starts with ${ROOT}, empty here: tools/docker_steps.sh runs the same steps below a temporary folder.
# For it RUN, COPY, ARG, ENV and WORKDIR stay in their plain shell form.

FROM python:3.11-slim AS build
ARG ROOT=
WORKDIR ${ROOT}/source
COPY pyproject.toml README.md LICENSE ./
COPY nnhal ./nnhal
COPY driver ./driver
COPY cache ./cache
COPY service ./service
COPY tools ./tools
RUN python3 -m venv ${ROOT}/opt/nnhal
RUN ${ROOT}/opt/nnhal/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check '.[cli]'

FROM python:3.11-slim
ARG ROOT=
COPY --from=build ${ROOT}/opt/nnhal ${ROOT}/opt/nnhal
ENV PATH=${ROOT}/opt/nnhal/bin:${PATH}
# No account of the image and not root; a number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 50051
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s CMD ["nnhal", "info", "--target", "127.0.0.1:50051"]
ENTRYPOINT ["nnhal"]
CMD ["serve", "--listen", "0.0.0.0:50051", "--insecure"]
