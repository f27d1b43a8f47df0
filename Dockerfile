# The program alone, on the CPU; with a driver that the container runtime mounts (docker run --gpus all) also on a GPU.
#
#   docker build -t fgrpo .
#   docker run --rm -v "$PWD:/work" fgrpo train maze-quick
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin fgrpo

# Python is what graders of one's own and tests of code run in.
FROM python:3.12-slim-bookworm
COPY --from=build /source/target/release/fgrpo /usr/local/bin/fgrpo
WORKDIR /work
ENTRYPOINT ["fgrpo"]
CMD ["--help"]
