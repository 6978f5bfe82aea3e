# syntax=docker/dockerfile:1
# The operator's image: one static binary, no shell, not root; its root file system may be mounted read-only.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X tensorstack.dev/batch/internal/version.Version=$VERSION" \
    -o /out/t9k-operator ./cmd/t9k-operator

FROM scratch
COPY --from=build /out/t9k-operator /t9k-operator
USER 65532:65532
ENTRYPOINT ["/t9k-operator"]
