# docker build -t attnlab .                             for processors
# docker build -t attnlab --build-arg TORCH=cu130 .     for NVIDIA GPUs: the name of one of PyTorch's package indexes
FROM python:3.13-slim
ARG TORCH=cpu
# torch.compile and Triton need a compiler.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY constraints.txt LICENSE README.md pyproject.toml ./
RUN pip install --no-cache-dir -c constraints.txt --index-url "https://download.pytorch.org/whl/$TORCH" torch
COPY attnlab attnlab
COPY examples examples
RUN pip install --no-cache-dir -c constraints.txt .
WORKDIR /work
ENTRYPOINT ["attnlab"]
