#!/usr/bin/env python3
"""Follows the README on Debian systems on which nothing is installed, and runs the packages made there on others.

    fresh_machine.py [--folder DIR] [--quick] [bookworm trixie]

Needs root. Each system is laid out by debootstrap in a folder and entered with chroot: make is installed, then comes
what the README says, `make demo` and `make test` (without the sanitizers, whose result does not depend on the machine;
--quick: without any tests), then install.sh once more without a network, and `make image`. Every package is then
started in the smallest form of every system, with python3 as all that was added, from a read-only mount and as a user
without rights. The mirrors are those of this machine's apt, pip and npm; models come from its cache. A folder that is
named is kept, and what was done there is not done again. The last lines are the README's table.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import grpc
from localai_client import Client, free_port
from models import cache_folder
from variants import VARIANTS

REPOSITORY = Path(__file__).resolve().parent.parent
SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
SOURCES = "/root/vllm-backend"
STAGES = "install-dev lint native-tests python-tests e2e-tests"
PACKAGE = VARIANTS["cpu"].name
NOBODY = 65534
INSIDE = "FRESH_MACHINE_INSIDE"  # set for the process that has the mounts

# How this machine reaches package mirrors: taken over as it is, whatever it is.
CONFIGURATION = (
    "/etc/apt/apt.conf.d",
    "/etc/apt/auth.conf.d",
    "/etc/npmrc",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/share/ca-certificates",
)
VARIABLES = re.compile(r"(PIP|UV|NPM_CONFIG|NODE_EXTRA|SSL_CERT|REQUESTS_CA|CURL_CA)_\w+|\w+_PROXY", re.IGNORECASE)
NOT_TAKEN = {"PIP_FIND_LINKS"}  # folders of this machine


class FreshMachineError(Exception):
    """What did not work; one sentence."""


def step(text: str) -> None:
    print(f"==> {datetime.now(timezone.utc):%H:%M:%S} {text}", flush=True)


def run(*command: str | Path, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(command, text=True, check=False, **options)
    if done.returncode != 0:
        said = f": {done.stderr.strip()}" if done.stderr else ""
        raise FreshMachineError(f"{' '.join(map(str, command))} ended with status {done.returncode}{said}")
    return done


def mirror() -> str:
    """Where this machine's apt has Debian's packages from."""
    listed = run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", capture_output=True).stdout
    sites = [line for line in listed.splitlines() if line]
    if not sites:
        raise FreshMachineError("apt knows no mirror; this runs on Debian only")
    return sites[0]


@contextlib.contextmanager
def mounted(source: str | Path, place: Path, *options: str) -> Iterator[None]:
    """A bind mount, or another kind by its options, that goes with the body."""
    place.mkdir(parents=True, exist_ok=True)
    run("mount", *(options or ("--bind",)), source, place)
    try:
        yield
    finally:
        run("umount", "--lazy", place)


class System:
    """A root folder with a Debian system."""

    def __init__(self, root: Path):
        self.root = root

    def lay_out(self, suite: str) -> None:
        if (self.root / "etc/debian_version").exists() and not (self.root / "debootstrap").exists():
            return
        step(f"Laying out {SUITES[suite]} in {self.root}")
        shutil.rmtree(self.root, ignore_errors=True)
        run("debootstrap", "--variant=minbase", suite, self.root, mirror(), stdout=subprocess.DEVNULL)
        for name in CONFIGURATION:
            source, target = Path(name), self.root / name.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """With the kernel's file systems in their places."""
        with mounted("proc", self.root / "proc", "-t", "proc"), mounted("/dev", self.root / "dev", "--rbind"):
            yield

    def command(self, *words: str, user: int = 0, folder: str = "/") -> list[str]:
        place = ["env", f"--chdir={folder}"]
        return ["chroot", f"--userspec={user}:{user}", str(self.root), *place, *words]

    def run(self, *words: str, user: int = 0, folder: str = "/", **options) -> subprocess.CompletedProcess:
        return run(*self.command(*words, user=user, folder=folder), env=environment(user), **options)

    def says(self, *words: str) -> str:
        return self.run(*words, capture_output=True).stdout.strip()

    def install(self, *packages: str) -> None:
        step(f"Installing {' '.join(packages)} in {self.root.name}")
        self.run("apt-get", "update", "-qq")
        self.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, stdout=subprocess.DEVNULL)


def environment(user: int) -> dict[str, str]:
    taken = {key: value for key, value in os.environ.items() if VARIABLES.fullmatch(key) and key not in NOT_TAKEN}
    return {
        **taken,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root" if user == 0 else "/nonexistent",
        "DEBIAN_FRONTEND": "noninteractive",
    }


def copy_sources(root: Path) -> None:
    """What a clone of this tree would have."""
    target = root / SOURCES.lstrip("/")
    listed = run("git", "ls-files", "-coz", "--exclude-standard", cwd=REPOSITORY, capture_output=True).stdout
    for name in listed.split("\0"):
        source = REPOSITORY / name
        if name and source.is_file() and not source.is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if not (target / name).exists() or (target / name).read_bytes() != source.read_bytes():
                shutil.copy(source, target / name)


def follow_readme(system: System, quick: bool) -> dict[str, str]:
    """Everything that is done with the sources on one system; what the table tells of it."""
    copy_sources(system.root)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with system.entered(), mounted(cache, system.root / SOURCES.lstrip("/") / ".cache/models"):
        if not (system.root / "usr/bin/make").exists():
            system.install("make")
        told = {}
        for name, command in (
            ("make demo", ("make", "demo")),
            ("make test", ("make", "test", f"STAGES={STAGES}")),
        ):
            if quick and name == "make test":
                told[name] = "not run"
                continue
            step(f"{name} in {system.root.name}")
            started = time.monotonic()
            system.run(*command, folder=SOURCES)
            step(f"{name} in {system.root.name} took {time.monotonic() - started:.0f} s")
            told[name] = "passes"
        step(f"install.sh without a network in {system.root.name}")
        run("unshare", "--net", *system.command("./install.sh", folder=SOURCES), env=environment(0))
        step(f"make image in {system.root.name}")
        system.run("make", "image", folder=SOURCES)
        told["python"] = system.says("python3", "--version").split()[1]
        told["glibc"] = system.says("ldd", "--version").splitlines()[0].split()[-1]
        told["compiler"] = system.says("g++", "-dumpfullversion")
        return told


def start_package(system: System, package: Path) -> None:
    """The package on a read-only mount, as a user without rights: its self-test, then its server."""
    place = system.root / "opt/backend"
    with system.entered(), mounted(package, place):
        run("mount", "-o", "remount,bind,ro", place)
        done = system.run("/opt/backend/run.sh", "selftest", user=NOBODY, capture_output=True)
        if not done.stdout.startswith("selftest: OK"):
            raise FreshMachineError(f"the self-test says {done.stdout.strip()}")
        print(done.stdout.strip(), flush=True)
        address = f"127.0.0.1:{free_port()}"
        command = system.command("/opt/backend/run.sh", "--addr", address, user=NOBODY, folder="/opt/backend")
        with subprocess.Popen(command, env=environment(NOBODY), start_new_session=True) as process:
            try:
                wait_ready(Client(address), process)
                process.send_signal(signal.SIGTERM)
                process.wait(5)
            finally:
                process.kill()


def wait_ready(client: Client, process: subprocess.Popen) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(grpc.RpcError):
            if client.health(timeout=1) == b"OK":
                return
        time.sleep(0.1)
    raise FreshMachineError("the backend did not answer Health within 20 s")


def table(rows: dict[str, dict[str, str]]) -> str:
    lines = [
        "| System | g++ | glibc | Python | `make demo` | `make test` | runs packages made on |",
        "|---|---|---|---|---|---|---|",
    ]
    for suite, told in rows.items():
        cells = [told[key] for key in ("compiler", "glibc", "python", "make demo", "make test", "packages")]
        lines.append(f"| {SUITES[suite]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def check(folder: Path, suites: list[str], quick: bool) -> None:
    rows, plain = {}, {}
    for suite in suites:
        plain[suite], full = System(folder / f"{suite}-plain"), System(folder / suite)
        plain[suite].lay_out(suite)
        if not full.root.exists():
            run("cp", "-a", plain[suite].root, folder / "copy")
            (folder / "copy").rename(full.root)
        if not (plain[suite].root / "usr/bin/python3").exists():
            with plain[suite].entered():
                plain[suite].install("python3")
        rows[suite] = follow_readme(full, quick)
    for suite in suites:
        for maker in suites:
            step(f"The package of {SUITES[maker]} on {SUITES[suite]}")
            start_package(plain[suite], folder / maker / SOURCES.lstrip("/") / "dist" / PACKAGE)
        rows[suite]["packages"] = ", ".join(SUITES[maker] for maker in suites)
    print(f"\nOn {datetime.now(timezone.utc):%Y-%m-%d}:\n\n{table(rows)}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="fresh_machine.py", description="the README's commands on fresh systems")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default: all")
    parser.add_argument("--folder", type=Path, help="where the systems are laid out, and kept")
    parser.add_argument("--quick", action="store_true", help="without make test")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.suites) - set(SUITES))
    if unknown:
        parser.error(f"unknown is {unknown[0]}; known are {', '.join(SUITES)}")
    if os.geteuid() != 0:
        print("fresh_machine: chroot and mounts need root", file=sys.stderr)
        return 1
    try:
        if INSIDE in os.environ:
            check(given.folder, given.suites or list(SUITES), given.quick)
            return 0
        if shutil.which("debootstrap") is None:
            step("Installing debootstrap")
            run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap", stdout=subprocess.DEVNULL)
        with contextlib.ExitStack() as stack:
            folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fresh-machine-")))
            folder.mkdir(parents=True, exist_ok=True)
            # The mounts are made in a namespace of their own and end with it: removing the folder never meets one.
            again = [sys.executable, __file__, "--folder", str(folder.resolve()), *given.suites]
            again += ["--quick"] if given.quick else []
            inside = ["unshare", "--mount", "--propagation", "private", *again]
            return subprocess.run(inside, env={**os.environ, INSIDE: "1"}, check=False).returncode
    except (FreshMachineError, OSError, subprocess.TimeoutExpired) as error:
        print(f"fresh_machine: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
