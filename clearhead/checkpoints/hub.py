"""Models on the Hugging Face Hub, through `huggingface_hub`: its cache, its login and its offline mode are the user's.

That library writes a download under its final name only once it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path

from clearhead.checkpoints.folder import INDEX, PICKLE, PICKLE_INDEX, POOLING, SIDECARS, SINGLE
from clearhead.errors import ClearheadError

WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
HUB_ID = re.compile(rf"(?P<repo>{WORD}(?:/{WORD})?)|(?P<holder>{WORD}/{WORD})/(?P<file>[^\\]+\.gguf)")
"""`owner/name`, an old one-word `name`, or `owner/name/file.gguf`."""

CONFIG = "config.json"
WEIGHTS = [SINGLE, INDEX, "model-*-of-*.safetensors"]
PICKLED = [PICKLE, PICKLE_INDEX, "pytorch_model-*-of-*.bin"]


def is_hub_id(source: str) -> bool:
    """Whether a text has the form of a Hub id."""
    found = HUB_ID.fullmatch(source)
    if found is None or ".." in source or "--" in source:
        return False
    return found["file"] is not None or not source.endswith((".gguf", ".safetensors", ".bin"))


def hub_path(source: str, revision: str | None = None, token: str | None = None) -> Path:
    """The local folder (or .gguf file) of a Hub id, downloaded unless the cache has it. Raises ClearheadError."""
    found = HUB_ID.fullmatch(source)
    if found is None:
        raise ClearheadError(f"{source!r} is not a Hub id, which reads owner/name")
    if found["file"]:
        return _gguf(found["holder"], found["file"], revision, token)
    folder = _snapshot(source, [*SIDECARS, *WEIGHTS], revision, token)
    if not any((folder / name).exists() for name in (SINGLE, INDEX)):
        folder = _snapshot(source, [*SIDECARS, *PICKLED], revision, token)
    if not any((folder / name).exists() for name in (SINGLE, INDEX, PICKLE, PICKLE_INDEX)):
        raise ClearheadError(f"{source} has no safetensors or PyTorch weights{_ggufs(source, revision, token)}")
    if (folder / "modules.json").exists():
        _snapshot(source, [POOLING], revision, token, ignored=None)
    return folder


def hub_config(source: str) -> Path:
    """The local config.json of a Hub id `owner/name`, without its weights. Raises ClearheadError."""
    path = _snapshot(source, [CONFIG], None, None) / CONFIG
    if not path.exists():
        raise ClearheadError(f"{source} has no {CONFIG}{_ggufs(source, None, None)}")
    return path


def _snapshot(
    repo: str, patterns: list[str], revision: str | None, token: str | None, ignored: str | None = "*/*"
) -> Path:
    from huggingface_hub import snapshot_download

    try:
        # The weights of other libraries lie in subfolders.
        path = snapshot_download(repo, revision=revision, token=token, allow_patterns=patterns, ignore_patterns=ignored)
    except Exception as problem:
        raise _translate(problem, repo, revision) from problem
    return Path(path)


def _gguf(repo: str, file: str, revision: str | None, token: str | None) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo, file, revision=revision, token=token))
    except Exception as problem:
        raise _translate(problem, f"{repo} (file {file})", revision) from problem


def _ggufs(repo: str, revision: str | None, token: str | None) -> str:
    """The GGUF files of a repository, as the end of an error message: empty when it has none, or offline."""
    from huggingface_hub import list_repo_files

    try:
        found = [file for file in list_repo_files(repo, revision=revision, token=token) if file.endswith(".gguf")]
    except Exception as problem:
        return f" in the local cache ({_translate(problem, repo, revision)})"
    return f". It has GGUF files: give one of them, such as {repo}/{found[0]}" if found else " on the Hub"


def _translate(problem: Exception, repo: str, revision: str | None) -> Exception:
    """What went wrong at the Hub, as something a user can act on; a defect is left as it is."""
    from huggingface_hub import constants, errors

    what = f"{repo} at revision {revision}" if revision else repo
    first = str(problem).strip().split("\n")[0]
    # The order counts: a gated repository is a kind of missing one, and so is an absent cache entry of a file.
    if isinstance(problem, errors.GatedRepoError):
        text = f"{what} is gated: accept its terms on https://huggingface.co/{repo}, then run `hf auth login`."
    elif isinstance(problem, errors.RepositoryNotFoundError):
        text = f"the Hub has no model {what}, or it is private: check the name, or give a token (`hf auth login`)."
    elif isinstance(problem, errors.RevisionNotFoundError):
        text = f"{repo} has no revision {revision!r} on the Hub."
    elif isinstance(problem, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the Hub can't be reached"
        text = (
            f"{what} is not in the local cache ({constants.HF_HUB_CACHE}), and {why}. "
            "Go online, or give a folder or a .gguf file that is on this machine."
        )
    elif isinstance(problem, errors.EntryNotFoundError):
        text = f"the Hub has no such file: {what}."
    elif isinstance(problem, errors.HfHubHTTPError | errors.HFValidationError | OSError):
        text = f"{what} could not be downloaded: {first or type(problem).__name__}. Try again."
    else:
        return problem
    return ClearheadError(text)
