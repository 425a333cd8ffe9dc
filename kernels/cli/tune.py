"""tune: finds the settings of a kernel that are best on this card, and writes them into its table."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from kernels import catalog
from kernels.cli.files import replace_file
from kernels.cli.progress import Progress
from kernels.cli.stop import Stop
from kernels.config_files import ConfigError, load_config
from kernels.contract.events import Confirmed, Event, Started, Tried
from kernels.contract.search import NotATable, Search, Table, read_table
from kernels.host.device import Device, find_device
from kernels.parent.child_process import Cancelled
from kernels.parent.supervisor import WrongEnvironment
from kernels.report import searches
from kernels.settings import Settings, size_of, table_path
from kernels.tune_plan import SAMPLERS, TunePlan
from kernels.tuning.instrument import Instrument
from kernels.tuning.of_spec import kernel_digest, why_not
from kernels.tuning.samplers import CannotTune
from kernels.tuning.tuner import Tuner, now
from kernels.workload import Config, RunSpec, Workload, sentence

OPTIONS = tuple(TunePlan.model_fields)


def tune_options(command: argparse.ArgumentParser) -> None:
    """The options of `tune`: those of a plan (kernels/tune_plan.py), without defaults, so that a resumed one keeps its own."""
    command.add_argument("kernel", nargs="?", help="kernel name, or operation/name; not needed with --resume")
    command.add_argument("--config", help="workloads: a name in kernels/configs/, or the path of a .yaml file")
    command.add_argument("--device", help="cuda:0, cpu or a UUID (default: the first GPU, else the CPU)")
    command.add_argument("--sampler", choices=SAMPLERS, help="which settings are tried next (tpe)")
    command.add_argument("--seed", type=int, help="seed of the sampler (0)")
    command.add_argument("--trials", type=int, help="maximum number of trials (24)")
    command.add_argument("--minutes", type=float, help="maximum duration of the whole search in minutes")
    command.add_argument("--together", type=int, help="settings that are screened in the same rounds (4)")
    command.add_argument("--finalists", type=int, help="settings that are measured again (3)")
    command.add_argument("--processes", type=int, help="fresh processes that confirm each finalist (5)")
    command.add_argument("--least", type=float, help="minimum speedup over the kernel's own choice (1.03)")
    command.add_argument("--shapes", type=int, help="number of workloads that must reach the minimum speedup (2)")
    command.add_argument("--population", type=int, help="evolution: settings drawn at random first (8)")
    command.add_argument("--elites", type=int, help="evolution: the best so far, whose settings are mutated (3)")
    command.add_argument("--each", action="store_true", help="run a separate search for each workload")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the table to FILE, not beside the kernel")
    command.add_argument("--resume", type=Path, metavar="FILE", help="continue the interrupted searches in FILE")


def do_tune(arguments: argparse.Namespace, stop: Stop) -> int:
    """Searches, prints the table, and writes it after each trial."""
    device, progress = find_device(arguments.device), Progress()
    if arguments.resume:
        path, table, left = _to_resume(arguments, device)
    else:
        info, config = _chosen(arguments)
        path = arguments.out or table_path(Path(info.path), info.name)
        table = _table(path, info)
        left = _searches(arguments, info, config, device)
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} to write {path.name} in")
    for search in left:
        one = OneSearch(search, device, path, table, progress, stop)
        try:
            one.run()
        except Cancelled:
            progress.end()
            progress.say(
                f"ended by {stop.signal.name if stop.signal else 'a signal'}: {_so_far(one.search)}, in {path}"
            )
            progress.say(f"The rest: python -m kernels tune --resume {path}")
            print(searches.as_text(one.search))
            return stop.status
        table = one.table
        progress.end()
        print(searches.as_text(one.search), flush=True)
    progress.say(f"written to {path}")
    return 0


def _so_far(search: Search) -> str:
    return f"{len(search.trials)} of {search.plan.trials} trials"


class OneSearch:
    """One search of the command: its events, and the file that has them after each."""

    def __init__(
        self, search: Search, device: Device, path: Path, table: Table, progress: Progress, stop: Stop
    ) -> None:
        self.search, self.device, self.path, self.table = search, device, path, table
        self.progress, self.stop = progress, stop

    def run(self) -> None:
        """Raises Cancelled when it is interrupted."""
        search = self.search
        spec = RunSpec(
            device=self.device.uuid,
            operation=search.operation,
            kernels=[search.kernel],
            baseline=search.kernel,
            protocol=search.protocol,
            workloads=search.workloads,
            fingerprint=search.fingerprint,
            tune=search.plan,
        )
        instrument = Instrument(spec, self.device, self._emit)
        self.progress.say(
            f"{search.operation}/{search.kernel} on {self.device.name}: {search.plan.trials} trials by {search.plan.sampler} "
            f"of {size_of(search.space)} settings, {len(search.workloads)} workloads"
        )
        try:
            self.tuner = Tuner(search, instrument, self._emit, self.progress.live, self.stop, self._from_table(search))
        except CannotTune as error:
            raise ConfigError(str(error)) from None
        try:
            self.tuner.run()
        except WrongEnvironment as error:
            raise ConfigError(f"{error}: start a new search, without --resume") from None
        finally:
            self._write()

    def _from_table(self, search: Search) -> list[Settings]:
        """The best settings of earlier searches: they are tried first."""
        known = [one.best for one in self.table.searches if one.best and set(one.keys) & set(search.keys)]
        return [one for one in known if one.keys() == search.space.keys()]

    def _emit(self, event: Event) -> None:
        match event:
            case Started():
                self.tuner.started(event)
            case Tried():
                self._write()
                self.progress.say(searches.line(event.trial, self.search.plan.trials))
            case Confirmed():
                self._write()

    def _write(self) -> None:
        self.search = self.tuner.search
        if self.search.environment:
            self.table = self.table.with_search(self.search)
            replace_file(self.path, self.table.as_json())


# --- what to search ---------------------------------------------------------------------------------------------------


def _chosen(arguments: argparse.Namespace) -> tuple[catalog.KernelInfo, Config]:
    """The kernel, and the part of the config that is about its operation."""
    if not (arguments.kernel and arguments.config):
        raise ConfigError("name a kernel and a config: python -m kernels tune KERNEL --config C; or --resume FILE")
    config = load_config(arguments.config)
    operation, _, name = arguments.kernel.rpartition("/")
    among = [operation] if operation else config.operations
    info = next((one for of in among for one in catalog.kernels(of) if one.name == name), None)
    if info is None:
        info = catalog.get_kernel(among[0], name)
    if info.operation not in config.operations:
        raise ConfigError(f"{arguments.config} has no workload of {info.operation}")
    return info, config.part(info.operation)


def _searches(arguments: argparse.Namespace, info: catalog.KernelInfo, config: Config, device: Device) -> list[Search]:
    why = why_not(info, device)
    workloads = [w for w in config.workloads if not info.why_not_for(w.dtype, w.problem.model_dump())]
    if not workloads:
        why = why or f"it supports none of the workloads of {config.name}"
    if why:
        raise ConfigError(f"{info.full_name} cannot be tuned here: {why}")
    groups = [[one] for one in workloads] if arguments.each else [workloads]
    new = partial(_search, _plan(arguments, TunePlan()), info, config)
    return [new(group) for group in groups]


def _search(plan: TunePlan, info: catalog.KernelInfo, config: Config, workloads: list[Workload]) -> Search:
    return Search(
        operation=info.operation,
        kernel=info.name,
        sha256=kernel_digest(info),
        plan=plan,
        protocol=config.protocol.model_copy(update={"name": "paired", "isolated": False, "verify_only": False}),
        space=info.space,
        keys=[one.key for one in workloads],
        workloads=workloads,
        began_at=now(),
    )


def _plan(arguments: argparse.Namespace, plan: TunePlan) -> TunePlan:
    asked = {name: value for name in OPTIONS if (value := getattr(arguments, name)) is not None}
    try:
        return TunePlan(**plan.model_dump() | asked)
    except ValidationError as error:
        raise ConfigError(sentence(error)) from None


def _table(path: Path, info: catalog.KernelInfo) -> Table:
    if not path.exists():
        return Table(operation=info.operation, kernel=info.name)
    table = _read(path)
    if (table.operation, table.kernel) != (info.operation, info.name):
        raise ConfigError(f"{path} is the table of {table.operation}/{table.kernel}: name another file")
    return table


def _read(path: Path) -> Table:
    try:
        return read_table(path.read_bytes())
    except NotATable as error:
        raise ConfigError(f"{path}: {error}") from None


def _to_resume(arguments: argparse.Namespace, device: Device) -> tuple[Path, Table, list[Search]]:
    """The searches of a file that were interrupted. More trials or minutes may be given."""
    path = arguments.resume
    table = _read(path)
    left = [one for one in table.searches if one.state != "done" and one.environment.get("uuid") == device.uuid]
    if not left:
        raise ConfigError(f"{path} has no search on {device.name} that was interrupted")
    info = catalog.get_kernel(table.operation, table.kernel)
    for one in left:
        if one.space != info.space:
            raise ConfigError(f"the space of {info.full_name} has changed since {one.began_at}: start a new search")
        if one.sha256 != kernel_digest(info):
            raise ConfigError(f"the source of {info.full_name} has changed since {one.began_at}: start a new search")
    return path, table, [one.model_copy(update={"plan": _plan(arguments, one.plan)}) for one in left]
