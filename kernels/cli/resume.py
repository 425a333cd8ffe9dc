"""A run that continues: what its file must agree with."""

from __future__ import annotations

from kernels import catalog
from kernels.config_files import ConfigError
from kernels.contract.arm_result import Status
from kernels.contract.environment import KEYED, WHERE_TOLD, fingerprint
from kernels.contract.export import Export
from kernels.host.device import Device
from kernels.parent.supervisor import WrongEnvironment
from kernels.settings import VARIANT
from kernels.workload import Config, RunSpec

PARTS = ("operation", "kernels", "baseline", "protocol", "workloads")
"""Fields of a config that decide what is measured."""


def check(before: Export, config: Config, device: Device) -> None:
    """Raises ConfigError if the run in a file cannot be continued with this config, these sources and this device."""
    if differ := [part for part in PARTS if getattr(before.config, part) != getattr(config, part)]:
        raise ConfigError(f"the run to resume has different {' and '.join(differ)}: start a new run, without --resume")
    if not before.environment:
        raise ConfigError("the run to resume does not say where it was measured: start a new run, without --resume")
    if (uuid := before.environment.get("uuid", device.uuid)) != device.uuid:
        raise ConfigError(f"the run to resume was measured on the device {uuid}, not on {device.uuid}")
    now = {(info.operation, info.name): info.sha256 for info in catalog.kernels()}
    measured = ((m.workload.operation, arm.kernel, arm) for m in before.measurements for arm in m.results)
    changed = {name for of, name, arm in measured if arm.sha256 != now.get((of, name.partition(VARIANT)[0]), "")}
    if changed:
        who = ", ".join(sorted(changed))
        raise ConfigError(f"the source of {who} has changed since the run to resume: start a new run, without --resume")


def spec_of(config: Config, device: Device, before: Export | None) -> RunSpec:
    """What is left to measure."""
    if before is None:
        return RunSpec.of(config, device.uuid)
    done = list({m.key: None for m in before.measurements})
    print_ = before.fingerprint or fingerprint(before.environment)
    return RunSpec.of(config, device.uuid, done=done, fingerprint=print_, ceilings=before.ceilings)


def statuses(before: Export | None) -> dict[tuple[str, str], Status]:
    """(workload key, kernel) -> its status in the file."""
    return {(m.key, arm.kernel): arm.status for m in (before.measurements if before else []) for arm in m.results}


def why_another(before: Export | None, error: WrongEnvironment) -> str:
    """What has changed since the run in the file, as a sentence."""
    was, now = (before.environment if before else {}), error.found
    differ = [
        f"{key} {now.get(key)} instead of {was.get(key)}"
        for key in (*KEYED, *WHERE_TOLD)
        if str(was.get(key)) != str(now.get(key))
    ]
    return f"the run to resume was measured with another fingerprint ({', '.join(differ)}): start a new run"
