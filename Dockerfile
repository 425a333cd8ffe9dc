# Two images: `site` runs the web server and the site's workers; `agent` adds torch and a compiler, for a GPU host.
FROM python:3.13-slim AS site
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY requirements.lock ./
RUN pip install -r requirements.lock
# Named one by one, so that neither .env nor var/ can come into an image.
COPY manage.py LICENSE ./
COPY benchsite benchsite
COPY kernels kernels
COPY runs runs
COPY static static
COPY templates templates
COPY docs docs
RUN SECRET_KEY=for-this-step-only python manage.py build_static && \
    useradd --system --create-home benchsite && chown -R benchsite var
USER benchsite
EXPOSE 8000
CMD ["python", "-m", "runs.hosting.web", "0.0.0.0", "8000"]

FROM site AS agent
USER root
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY requirements-torch.lock ./
RUN pip install -c requirements.lock -r requirements-torch.lock
USER benchsite
VOLUME /app/var
CMD ["python", "-m", "runs.agent"]

# What is built when no target is named.
FROM site
