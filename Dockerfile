# syntax=docker/dockerfile:1
# The images: one static binary each, no shell, not root; their root file system may be mounted read-only.
FROM --platform=$BUILDPLATFORM golang:1.26 AS source
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY . .
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    GOFLAGS="-trimpath" LDFLAGS="-s -w -X tensorstack.dev/batch/internal/version.Version=$VERSION"

FROM source AS build-scheduler
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -ldflags "$LDFLAGS" -o /out/t9k-scheduler ./cmd/t9k-scheduler

FROM source AS build-operator
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -ldflags "$LDFLAGS" -o /out/t9k-operator ./cmd/t9k-operator

FROM scratch AS scheduler
COPY --from=build-scheduler /out/t9k-scheduler /t9k-scheduler
USER 65532:65532
ENTRYPOINT ["/t9k-scheduler"]

FROM scratch AS operator
COPY --from=build-operator /out/t9k-operator /t9k-operator
USER 65532:65532
ENTRYPOINT ["/t9k-operator"]
