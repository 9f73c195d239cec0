# The gateway without a model in its process: it needs no compiler. docs/how-to/serve.md, "In a container".
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir uv==0.13.9 \
    && UV_PROJECT_ENVIRONMENT=/opt/gbnf uv sync --locked --no-dev --no-editable --no-cache --extra serve

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 gbnf
COPY --from=build /opt/gbnf /opt/gbnf
ENV PATH=/opt/gbnf/bin:$PATH GBNF_CACHE=/tmp/gbnf
USER 10001
WORKDIR /home/gbnf
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# listens beyond the container, so it requires GBNF_API_KEYS
ENTRYPOINT ["gbnf", "serve", "--host", "0.0.0.0"]
