# The service as an image: docker build -t nnhal . && docker run -p 50051:50051 nnhal
#
# It has no TLS and no authentication (--insecure): publish the port only where every client is trusted.

FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY client ./client
COPY driver ./driver
COPY cache ./cache
COPY service ./service
COPY tools ./tools
RUN python -m venv /opt/nnhal
RUN /opt/nnhal/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check '.[cli]'

FROM python:3.11-slim
COPY --from=build /opt/nnhal /opt/nnhal
ENV PATH=/opt/nnhal/bin:${PATH}
# A number that is not root, so that Kubernetes can tell.
USER 10001:10001
EXPOSE 50051
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s CMD ["nnhal", "info", "--target", "127.0.0.1:50051"]
ENTRYPOINT ["nnhal"]
CMD ["serve", "--listen", "0.0.0.0:50051", "--insecure"]
