#!/usr/bin/env python3
"""Records what `scontrol show hostnames` makes of host lists, as hostlists.txt beside this file.

Usage: record_hostlists.py > hostlists.txt     needs scontrol (Debian: slurm-client), no cluster
Each line: the list, a tab, then the hosts separated by blanks, or ! where scontrol refuses.
"""
import os
import random
import subprocess
import tempfile

CHOSEN = """
n1 alpha alpha,beta,gamma a-b login-node n1,n2,n3 n[1] n[01] n[1-3] n[01-03] n[001-003] n[1-3,7] n[01-03,7] n[7,1-3] n[3,1-2]
n[1,1] n[1-2,1-2] a,a n[1-2],n[1-2] n[1-2],x,m[3-4] n[01-03,7]-ib[0-1],alpha n[9-11] n[09-11] n[008-011] n[001-3] n[9-011]
n[98-101] n[098-101] n[99-100] n[0-0] n[00-010] n[1,02,003] n[0-1],n[01-02] [1-2] [1-2],a n-[1-2] n_[1-2] n.[1-2] N[1-2]
n1-3 n[1-2][3-4] n[1-2]x[3-4] r[1-2]n[01-02] n[1-2]n[3] n[1]n[2]n[3] a[1-2]b[1-2]c[1-2] a[1-2]b[1-3]c[1-2]d[1-2] a[1-2][3-4][5-6]
rack[0-1]-chassis[00-01]-node[1-3] n[1-2]-[1-2]-[1-2] x[01,3]y[2-3,07]z[9-10] a,,b ,a a, ,,a,, 10.0.0.1,10.0.0.2 10.0.0.[1-3] ip-10-0-[0-1]-[5-6]
gpu[1-12] jean-zay-ia[816-817,829] r6i4n[0-3] r[7-8]i[0-1]n[8-10] node-[000-002,010] c1-[2-3]c[4-5]s[0-1]n[2-3] n[2-1] n[] n[a] n[a-b]
n[1,] n[,1] n[-1] n[1-] n[1--2] n[-1-2] n[1-2-3] n[1-3:2] n[1_2] n[1-2]] n[x1] n[1x] [a] n[1,a] n[1.5] n[+1] n[0x10] n[65536-1]
""".split()
SPACED = ["a b", " a , b ", "a  b", "n[1-2] m[3-4]", "n[1-2], m", "\na"]


def random_list(rng):
    def number():
        return str(rng.choice([rng.randrange(12), rng.randrange(120)])).zfill(rng.choice([0, 0, 2, 3]))

    def group():
        items = []
        for _ in range(rng.randint(1, 3)):
            low = number()
            items.append(low if rng.random() < 0.5 else f"{low}-{int(low) + rng.randrange(4)}")
        return "[" + ",".join(items) + "]"

    names = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(["n", "node", "r-", "gpu_", "a.b", "x1-"])
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])):
            name += (rng.choice(["", "-", "n", "-ib"]) if name.endswith("]") else "") + group()
        names.append(name + ("-ib" if rng.random() < 0.03 else ""))
    text = ",".join(names)
    if rng.random() < 0.1:  # damaged
        at = rng.randrange(1, len(text) + 1)
        text = text[:at] + rng.choice("]-,x") + text[at:]
    return text


def main():
    rng = random.Random(7)
    lists = list(dict.fromkeys(CHOSEN + SPACED + [random_list(rng) for _ in range(300)]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "slurm.conf")
        with open(path, "w") as conf:
            conf.write("ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=ALL\n")
        for text in lists:
            answer = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True, timeout=60,
                                    env=dict(os.environ, SLURM_CONF=path))
            refused = answer.stderr != "" or answer.returncode != 0
            hosts = "!" if refused else " ".join(answer.stdout.split("\n")).strip()
            print(text.replace("\n", "\\n") + "\t" + hosts)


if __name__ == "__main__":
    main()
