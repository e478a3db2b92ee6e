"""The manifests of docs/examples/kubernetes: their parts fit together, their options are the program's, and they have the form
that Kubernetes (kubernetes-validate) and Kubeflow Trainer (kubeflow-trainer-api) ask for.

Usage: kubernetes_test.py ENGINE FOLDER
Exits with 77 (skipped) where neither this Python nor PEER_PYTHON has these packages, after what can be said without them.
"""
import copy
import os
import re
import subprocess
import sys

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
if wrong:
    print("\n".join(wrong))
    sys.exit(1)
if absent:
    print(f"skipped: the schemas were not asked: {absent}")
    sys.exit(77)
print("the manifests fit the program, Kubernetes and Kubeflow Trainer")
