# The image of the operator and the agent:  docker build -t registry.example/evenkeel-operator:0.1.0 .
# A lab needs no Docker: `lab image` builds an image from the programs and imports it into the nodes.
FROM docker.io/library/rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends protobuf-compiler libprotobuf-dev cmake clang && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --locked --release --package evenkeel-operator --package evenkeel-agent

# It contains the CA certificates of Debian, with which the agent verifies public stores.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/evenkeel-operator /source/target/release/evenkeel-agent /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/evenkeel-operator"]
