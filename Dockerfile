# Every base image is an argument: mirrors and other distributions fit in. PYTHON_IMAGE and RUNTIME_IMAGE must have the
# same Python at the same place, the runtime needs CA certificates too.
ARG GO_IMAGE=golang:1.26-bookworm
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG RUNTIME_IMAGE=python:3.11-slim-bookworm

# helm, from the module that the tests build theirs from: its version stands there alone.
FROM ${GO_IMAGE} AS helm
WORKDIR /src
COPY localfleet/modules/helm/ ./
# Without the stamp helm calls itself v4.3, which is no version to those who ask it.
RUN version="$(go list -m -f '{{.Version}}' helm.sh/helm/v4)" \
 && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=${version}" \
    -o /out/helm helm.sh/helm/v4/cmd/helm

# A virtual environment with what requirements/main.txt pins by hash, and fipop.
FROM ${PYTHON_IMAGE} AS python
RUN python3 -m venv /opt/fipop
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/ /src/requirements/
# What builds the package has its one pin among the development requirements.
RUN sed -n '/^setuptools==/,/# via/p' /src/requirements/dev.txt > /src/requirements/build.txt \
 && /opt/fipop/bin/pip install --require-hashes --only-binary :all: \
    -r /src/requirements/main.txt -r /src/requirements/build.txt
COPY LICENSE NOTICE pyproject.toml README.md /src/
COPY fipop/ /src/fipop/
RUN /opt/fipop/bin/pip install --no-deps --no-build-isolation /src \
 && /opt/fipop/bin/pip uninstall --yes setuptools pip

FROM ${RUNTIME_IMAGE}
# scripts/image.sh passes them. SOURCE is where the repository of this commit is.
ARG VERSION="" REVISION="" SOURCE=""
LABEL org.opencontainers.image.title="fipop" \
      org.opencontainers.image.description="Floating-IP operator for fleets of guest clusters under Rancher" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=helm /out/helm /usr/local/bin/helm
COPY --from=python /opt/fipop /opt/fipop
COPY crds/ /usr/share/fipop/crds/
# Where the chart of kube-vip-cloud-provider looks for its program.
RUN ln -s /opt/fipop/bin/kube-vip-cloud-provider /kube-vip-cloud-provider
# No .pyc is written: the root file system is read-only. HOME is where a pod has room.
ENV PATH=/opt/fipop/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["fipop"]
CMD ["operator"]
