# The command line in a container:  docker build -t m3g . && docker run --rm -v "$PWD:/work" m3g train --views a.npy b.npy
# With CUDA:  docker build --build-arg BASE=pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime -t m3g:cuda .
ARG BASE=python:3.12-slim
FROM ${BASE}

WORKDIR /opt/m3g
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[train]' && useradd --uid 10001 --create-home user && mkdir /work && chown user /work

USER 10001
WORKDIR /work
ENTRYPOINT ["m3g"]
CMD ["--help"]
