"""The manifests of docs/examples/kubernetes: their parts fit together, their options are the program's, and they have the form
that Kubernetes (kubernetes-validate) and Kubeflow Trainer (kubeflow-trainer-api) ask for. Processes with the options of the
elastic JobSet rehearse ten deletions of pods.

Usage: kubernetes_test.py ENGINE FOLDER
Exits with 77 (skipped) where neither this Python nor PEER_PYTHON has these packages, after what can be said without them.
"""
import copy
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api import models as trainer_api
except ImportError as error:
    peer = os.environ.pop("PEER_PYTHON", "")
    if peer:
        os.execvp(peer, [peer, *sys.argv])
    absent = str(error)
    try:
        import yaml
    except ImportError:
        print(f"skipped: {error}")
        sys.exit(77)
else:
    absent = ""

engine, folder = sys.argv[1:]
wrong = []


def expect(is_so, what):
    if not is_so:
        wrong.append(what)


def load(name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def run(arguments, variables):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    return subprocess.run([engine, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def variables_of(container):
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def takes_secret(container):
    return any(
        entry["name"] == "ENGINE_SECRET" and entry["valueFrom"]["secretKeyRef"]["name"] == "engine-secret"
        for entry in container["env"]
    )


def check_job():
    service, job = load("indexed-job.yaml")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (rank,) = pod["containers"]
    variables = variables_of(rank)
    name = job["metadata"]["name"]
    expect(service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"], "the service names no pods")
    expect(service["spec"]["selector"] == {"job-name": name}, "the service is not of this job")
    expect(pod["subdomain"] == service["metadata"]["name"], "the pods have no names in the service")
    expect(spec["completionMode"] == "Indexed", "the job is not indexed")
    expect(variables["WORLD_SIZE"] == str(spec["completions"]) == str(spec["parallelism"]), "WORLD_SIZE is not the number of pods")
    expect(variables["MASTER_ADDR"] == f"{name}-0.{service['metadata']['name']}", "MASTER_ADDR is not the first pod")
    expect(rank["ports"] == [{"containerPort": int(variables["MASTER_PORT"])}], "another port is open than MASTER_PORT")
    expect(pod["securityContext"]["runAsNonRoot"], "the ranks may be root")
    expect(takes_secret(rank), "the ranks have no secret")
    volumes = {volume["name"] for volume in pod["volumes"]}
    expect(volumes == {mount["name"] for mount in rank["volumeMounts"]}, "volumes and mounts differ")
    for index in range(spec["completions"]):
        shown = run(["env"], {**variables, "JOB_COMPLETION_INDEX": str(index)})
        is_rank = re.search(rf"^RANK +{index} +from JOB_COMPLETION_INDEX$", shown.stdout, re.MULTILINE)
        expect(is_rank, f"pod {index}: {shown.stdout}{shown.stderr}")
    config = run([*rank["args"], "--print-config"], {**variables, "JOB_COMPLETION_INDEX": "0"})
    expect(config.returncode == 0, config.stderr)
    if not absent:
        for document in (service, job):
            fault = fault_to_kubernetes(document)
            expect(not fault, f"{document['kind']}: {fault}")
        misspelt = copy.deepcopy(job)
        misspelt["spec"]["template"]["spec"]["subDomain"] = "digits"
        expect(fault_to_kubernetes(misspelt), "kubernetes-validate takes a field that there is not")


def check_train_job():
    (job,) = load("trainjob.yaml")
    trainer = job["spec"]["trainer"]
    expect((job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob"), "no TrainJob")
    expect(set(job["spec"]) == {"runtimeRef", "trainer"}, "unknown fields of the job")
    fields = {"image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"}
    expect(set(trainer) == fields, "unknown fields of the trainer")
    expect(takes_secret(trainer), "the ranks have no secret")
    program, *command = trainer["command"]
    expect(program == "engine", "another program")
    node = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "digits-node-0-0.digits",
        "PET_MASTER_PORT": "29500",
    }
    plan = run([*command, "--dry-run", *trainer["args"]], node)
    ranks = trainer["numNodes"] * trainer["numProcPerNode"]
    expect(plan.returncode == 0 and len(plan.stdout.splitlines()) == 1 + ranks, plan.stdout + plan.stderr)
    expect("digits-node-0-0.digits:29500" in plan.stdout, plan.stdout)
    config = run([*trainer["args"], "--print-config"], {})
    expect(config.returncode == 0, config.stderr)
    if not absent:
        fault = fault_to_kubeflow(job)
        expect(not fault, f"TrainJob: {fault}")
        for field, value in (("numNodes", "two"), ("numNodez", 2)):
            mistaken = copy.deepcopy(job)
            mistaken["spec"]["trainer"][field] = value
            expect(fault_to_kubeflow(mistaken), f"kubeflow-trainer-api takes {field}: {value}")


def check_job_set():
    (job_set,) = load("elastic-jobset.yaml")
    expect((job_set["apiVersion"], job_set["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet"), "no JobSet")
    expect(set(job_set["spec"]) == {"failurePolicy", "replicatedJobs"}, "unknown fields of the JobSet")
    (replicated,) = job_set["spec"]["replicatedJobs"]
    expect(set(replicated) == {"name", "replicas", "template"} and replicated["replicas"] == 1, "more than one group of pods")
    spec = replicated["template"]["spec"]
    pod = spec["template"]["spec"]
    (rank,) = pod["containers"]
    least, most = (int(n) for n in option_of(rank, "--elastic").split(":"))
    expect(spec["parallelism"] == spec["completions"] == most, "the pods are not MAX of --elastic")
    expect(spec["successPolicy"]["rules"] == [{"succeededCount": least}], "the job succeeds with other than MIN ranks")
    expect(rank["lifecycle"]["stopSignal"] == "SIGUSR2" and pod["os"]["name"] == "linux", "a deleted pod would end the job")
    expect(takes_secret(rank), "the ranks have no secret")
    volumes = {volume["name"] for volume in pod["volumes"]}
    expect(volumes == {mount["name"] for mount in rank["volumeMounts"]}, "volumes and mounts differ")
    config = run([*rank["args"], "--print-config"], {"JOB_COMPLETION_INDEX": "1"})
    expect(config.returncode == 0, config.stderr)
    if not absent:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "digits-ranks-0"}, "spec": spec}
        fault = fault_to_kubernetes(job)
        expect(not fault, f"JobSet: {fault}")
        misspelt = copy.deepcopy(job)
        misspelt["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {"stopsignal": "SIGUSR2"}
        expect(fault_to_kubernetes(misspelt), "kubernetes-validate takes a field of the lifecycle that there is not")
    with tempfile.TemporaryDirectory() as runs:
        Rehearsal(rank["args"], most, pathlib.Path(runs)).run(10)


def option_of(container, name):
    return next(a.split("=", 1)[1] for a in container["args"] if a.startswith(name + "="))


class Rehearsal:
    """Processes as the pods of the elastic JobSet: deleted, by its stop signal or without one, and replaced."""

    quick = {
        "--model": "mlp",
        "--dataset": "synthetic",
        "--synthetic-shape": "8x8x1",
        "--batch-size": "48",
        "--threads": "1",
        "--log-every": "5",
        "--eval-every": "0",
        "--save-every": "0",
        "--reduction-order": "canonical",
    }

    def __init__(self, arguments, ranks, runs):
        own = [a for a in arguments if a.split("=")[0] not in {*self.quick, "--data-dir", "--epochs"}]
        self.options = [f"{name}={value}" for name, value in self.quick.items()]
        self.arguments = [a.replace("/runs/", f"{runs}/") for a in own] + self.options
        self.ranks, self.runs = ranks, runs
        self.variables = {**os.environ, "ENGINE_SECRET": "5" * 64, "HOME": str(runs), "JOB_COMPLETION_INDEX": "0"}
        self.pods = []

    def start_pod(self):
        log = open(self.runs / f"pod{len(list(self.runs.glob('pod*')))}.log", "w", encoding="utf-8")
        command = [engine, *self.arguments, "--steps=100000000"]
        self.pods.append(subprocess.Popen(command, env=self.variables, stdout=log, stderr=log))

    def metrics(self):
        path = self.runs / "digits" / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def trains_again(self, before):
        """All ranks are members, and have done a step since."""
        size = 0
        for event in self.metrics()[before:]:
            if event["event"] in ("start", "membership"):
                ranks = event.get("ranks", 0)
                size = ranks if isinstance(ranks, int) else len(ranks)
            elif event["event"] == "step" and size == self.ranks:
                return True
        return False

    def wait_until(self, is_so, what):
        deadline = time.monotonic() + 60 * float(os.environ.get("ENGINE_TEST_TIME_SCALE", "1")) * max(1, os.getloadavg()[0] / os.cpu_count())
        while not is_so():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{p.name}: {p.read_text()[-500:]}" for p in sorted(self.runs.glob("pod*.log")))
                raise RuntimeError(f"not in time: {what}\n{logs}")
            time.sleep(0.05)

    def run(self, deletions):
        dice = random.Random(20)
        try:
            for _ in range(self.ranks):
                self.start_pod()
            self.wait_until(lambda: any(e["event"] == "step" for e in self.metrics()), "the first steps")
            for number in range(deletions):
                before = len(self.metrics())
                victim = self.pods.pop(dice.randrange(len(self.pods)))
                how = dice.choice([signal.SIGUSR2, signal.SIGKILL])
                victim.send_signal(how)
                code = victim.wait(timeout=120)
                expect(code == (80 if how == signal.SIGUSR2 else -signal.SIGKILL), f"deletion {number} by {how}: exit code {code}")
                self.start_pod()
                self.wait_until(lambda: self.trains_again(before), f"all ranks after deletion {number}")
            for pod in self.pods:
                pod.send_signal(signal.SIGTERM)
            codes = [pod.wait(timeout=120) for pod in self.pods]
            expect(codes == [143] * self.ranks, f"exit codes at the end: {codes}")
            self.compare()
        finally:
            for pod in self.pods:
                pod.kill()
                pod.wait()

    def compare(self):
        steps = int(re.search(r"step-0*(\d+)", (self.runs / "digits" / "latest").read_text()).group(1))
        alone = [engine, "train", *self.options, f"--steps={steps}", f"--save-dir={self.runs}/alone"]
        subprocess.run(alone, env=self.variables, capture_output=True, check=True, timeout=600)
        same = subprocess.run([engine, "verify", f"{self.runs}/alone", f"{self.runs}/digits"], capture_output=True, text=True)
        expect(same.returncode == 0, f"after ten deletions the state differs: {same.stdout}")


def fault_to_kubernetes(document):
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


def fault_to_kubeflow(document):
    """Its model checks types, and drops fields that it does not know."""
    try:
        known = trainer_api.TrainerV1alpha1TrainJob.from_dict(document).to_dict()
    except ValueError as error:
        return str(error)
    return "" if known == document else f"known of it is only {known}"


check_job()
check_train_job()
check_job_set()
if wrong:
    print("\n".join(wrong))
    sys.exit(1)
if absent:
    print(f"skipped: the schemas were not asked: {absent}")
    sys.exit(77)
print("the manifests fit the program, Kubernetes and Kubeflow Trainer")
