#!/usr/bin/env bash
# Runs the whole site on a GPU host and keeps what it exports: broker, web, recorder, worker, beat, agent, child.
# Each run is exported as soon as it has ended, so that a host that goes away leaves what it had.
# usage: scripts/gpu_site.sh OUT_FOLDER [CONFIG ...]   (BENCH_LIMIT_S: seconds for each)
set -u
out=$1; shift
export BENCHSITE_VAR=$(mktemp -d) BENCHSITE_ENV=$(mktemp -u) PYTHONUNBUFFERED=1
python3 manage.py up > "$out/up.log" 2>&1 &
site=$!
for _ in $(seq 240); do grep -q "Benchsite is at" "$out/up.log" && break; sleep 0.5; done

export_runs() {
    python3 manage.py shell -v0 -c "
import pathlib
from django.contrib.auth import get_user_model
from django.test import Client
from runs.models import RejectedEvent, Run
client = Client(); client.force_login(get_user_model().objects.first())
for run in Run.objects.filter(demo=''):
    pathlib.Path('$out', f'run-{run.pk}-{run.config_name}.json').write_bytes(client.get(f'/runs/{run.pk}.json').content)
    page = client.get(run.get_absolute_url())
    print('run', run.pk, run.config_name, run.state, 'attempts', run.attempts, 'seq', run.seq, 'page', page.status_code, 'took', run.elapsed_s, 'wait', (run.started_at - run.created_at).total_seconds())
print('rejected events:', RejectedEvent.objects.count())
" 2>&1 | tail -n 8
}

for config in "${@:-smoke}"; do
    timeout "${BENCH_LIMIT_S:-1800}" python3 manage.py bench --config "$config"
    export_runs
done
kill -INT $site; wait $site; echo "site stopped: $?"
