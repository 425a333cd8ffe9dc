# Three images. `site`: the web server and the site's workers. `agent`: the same with torch and a compiler, for a GPU host.
# `front`: the TLS front. None runs as root.
FROM python:3.13-slim AS site
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# For manage.py backup and restore: as new as the server, or newer.
RUN apt-get update && apt-get install -y --no-install-recommends postgresql-client && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home benchsite
WORKDIR /app
COPY requirements.lock ./
RUN pip install -r requirements.lock
# Named one by one, so that neither .env nor secrets/ nor var/ can come into an image.
COPY manage.py LICENSE ./
COPY benchsite benchsite
COPY kernels kernels
COPY runs runs
COPY static static
COPY templates templates
COPY docs docs
RUN SECRET_KEY=for-this-step-only python manage.py build_static && \
    mkdir -p var/cache var/metrics && chown -R benchsite var
USER benchsite
EXPOSE 8000
CMD ["python", "-m", "runs.hosting.web", "0.0.0.0", "8000"]

FROM site AS agent
USER root
RUN apt-get update && apt-get install -y --no-install-recommends g++ git && rm -rf /var/lib/apt/lists/*
COPY requirements-torch.lock ./
RUN pip install -c requirements.lock -r requirements-torch.lock
USER benchsite
VOLUME /app/var
CMD ["python", "-m", "runs.agent"]

FROM caddy:2-alpine AS front
# Ports above 1024 need no rights: the program's own are taken away, else it would not start without them.
RUN setcap -r /usr/bin/caddy && adduser -S -D -H -u 10002 front && mkdir -p /data /config && chown -R front /data /config
COPY deploy/Caddyfile /etc/caddy/Caddyfile
USER front
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]

# What is built when no target is named.
FROM site
