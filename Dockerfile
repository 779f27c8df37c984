# The operator's image, for a registry of your own:  docker build -t registry.example/evenkeel-operator:0.1.0 .
# (The lab needs no Docker: `lab image` makes the same from the program.)
FROM docker.io/library/rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends protobuf-compiler libprotobuf-dev cmake clang && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --locked --release --package evenkeel-operator

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/evenkeel-operator /usr/local/bin/evenkeel-operator
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/evenkeel-operator"]
