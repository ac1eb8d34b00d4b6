"""A job as a RayJob of KubeRay: the manifest, checked by a schema before it is applied.

The templates `rayjob.json` and `rayjob.schema.json` are in this folder. The schema covers the parts of KubeRay's RayJob
(ray.io/v1) that the template uses; unknown fields are refused.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib import resources
from typing import Any

from hloom.cluster.jobs.job import Job
from hloom.errors import ArgumentError, DistributedError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


def _file(name: str) -> dict[str, Any]:
    return json.loads(resources.files("hloom.cluster.jobs").joinpath(name).read_text(encoding="utf-8"))


def manifest(
    job: Job, *, name: str, image: str, claim: str, namespace: str = "default", memory: str = "4Gi"
) -> dict[str, Any]:
    """The RayJob of a job. name: of the object. image: one that has hloom[cluster] and the program. claim: the
    PersistentVolumeClaim whose volume is the job's folder in all containers (access mode ReadWriteMany). memory: of
    each worker. Raises ArgumentError for names and quantities that Kubernetes does not take, DistributedError where
    jsonschema is missing."""
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"the name {name!r} of a RayJob", "lower-case letters, digits and -, at most 47", "rename it"
        )
    if not _QUANTITY.fullmatch(memory):
        raise ArgumentError("--memory of a worker", repr(memory), "write a quantity of Kubernetes, such as 4Gi")
    if not image:
        raise ArgumentError(
            "a job on Kubernetes", "no image", "pass --image REGISTRY/NAME:TAG, with hloom[cluster] in it"
        )
    if not _NAME.fullmatch(claim):
        raise ArgumentError(
            f"the folder {job.folder} of a job on Kubernetes",
            f"the volume claim {claim!r}: its processes share that folder" if claim else "no volume holds it",
            "pass --claim NAME of a PersistentVolumeClaim that all nodes can write to",
        )
    if not job.folder.startswith("/"):
        raise ArgumentError(f"the folder {job.folder!r} of a job on Kubernetes", "a relative path", "pass /shared/run")
    made = _file("rayjob.json")
    made["metadata"].update(name=name, namespace=namespace)
    spec = made["spec"]
    options = [
        f"--workers {job.workers}",
        f"--devices {job.devices}",
        f"--restarts {job.restarts}",
        f"--hang {job.hang:g}",
    ]
    options += [f"--ps {job.ps}"] if job.ps else []
    options += [f"--backup {job.backup}"] if job.backup else []
    options += [flag for flag, on in (("--elastic", job.elastic), ("--async", job.asynchronous)) if on]
    command = " ".join(_quoted(word) for word in job.command)
    spec["entrypoint"] = (
        f"python -m hloom cluster submit --ray auto {' '.join(options)} --folder {_quoted(job.folder)} {command}"
    )
    cluster = spec["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]
    group = cluster["workerGroupSpecs"][0]
    worker = group["template"]["spec"]["containers"][0]
    head["image"] = worker["image"] = image
    for template in (cluster["headGroupSpec"]["template"], group["template"]):
        volume = {"name": "job", "persistentVolumeClaim": {"claimName": claim}}
        template["spec"]["volumes"] = [volume]
        template["spec"]["containers"][0]["volumeMounts"] = [{"name": "job", "mountPath": job.folder}]
    count = job.workers + job.ps
    group.update(replicas=count, minReplicas=1 if job.elastic else count, maxReplicas=count)
    for kind in ("limits", "requests"):
        worker["resources"][kind] = {"cpu": str(job.devices), "memory": memory}
    check(made)
    return made


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w./:=@%+,-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def check(made: dict[str, Any]) -> None:
    """Raises DistributedError for a manifest that is not a RayJob, with the path of the error."""
    try:
        # Saves start-up time: only jobs on Kubernetes need it.
        import jsonschema
    except ImportError as error:
        raise DistributedError(
            "a manifest for Kubernetes is checked", f"no jsonschema: {error}", "pip install 'hloom[cluster]'"
        ) from error
    found = sorted(
        jsonschema.Draft202012Validator(_file("rayjob.schema.json")).iter_errors(made), key=lambda e: e.json_path
    )
    if found:
        raise DistributedError(
            f"a RayJob for Kubernetes: {found[0].json_path}", found[0].message, "correct the manifest"
        )


def apply(made: dict[str, Any]) -> int:
    """Passes the manifest to `kubectl apply`, and returns its status. Raises DistributedError if kubectl is missing."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise DistributedError(
            "a job on Kubernetes", "there is no kubectl on PATH",
            "install it, or print the manifest with --dry-run and apply it elsewhere",
        )  # fmt: skip
    return subprocess.run([kubectl, "apply", "-f", "-"], input=json.dumps(made), text=True).returncode


__all__ = ["apply", "check", "manifest"]
