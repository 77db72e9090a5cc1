# The web page in a container: docker build -t mr-sampler . && docker run -p 7860:7860 mr-sampler
#
# BASE     another image with Python 3.11 or newer; for GPUs one with the CUDA libraries, run with --gpus all
# INDEX    the index of PyTorch's CPU wheels (pytorch.org names it), which make the image some gigabytes smaller than
#          the ordinary wheels do: --build-arg INDEX="--index-url ADDRESS"
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG INDEX=""
# OpenCV's wheel is linked against these.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY requirements.txt ./
RUN pip install --no-cache-dir ${INDEX} -c requirements.txt torch torchvision
COPY pyproject.toml README.md LICENSE ./
COPY codes codes
COPY options options
COPY pretrained pretrained
RUN pip install --no-cache-dir -c requirements.txt '.[app]' && useradd --create-home user
USER user
WORKDIR /home/user
RUN mr-sampler fetch-weights --only lpips || echo "the page works without LPIPS"
EXPOSE 7860
CMD ["mr-sampler", "app", "--host", "0.0.0.0"]
