"""Reads the acceptor files of elastic jobs, as the tests see them from outside."""
import collections
import os
import pathlib
import struct
import time


class AcceptorFiles:
    """What the acceptor files of all hosts have ever said: which ranks a generation has. Their files are those of
    backends/membership/acceptor_file.cc."""

    def __init__(self):
        self.folder = pathlib.Path(f"/dev/shm/engine-{os.geteuid()}")
        self.before = set(self.files())
        self.seen = {}   # file: the copies as read last
        self.said = collections.defaultdict(dict)  # generation: (nonce, pids in order): when it was seen first

    def files(self):
        try:
            return list(self.folder.glob("elastic-*"))
        except OSError:
            return []

    @staticmethod
    def roster(data):
        at = 0

        def take(form):
            nonlocal at
            value, = struct.unpack_from("<" + form, data, at)
            at += struct.calcsize("<" + form)
            return value

        def text():
            nonlocal at
            size = take("I")
            at += size
            return data[at - size:at]

        generation = take("q")
        if generation == 0:
            return None
        nonce, pids = text(), []
        for _ in range(take("I")):
            at += 16
            text(), text(), text()
            pids.append(take("i"))
            at += 4 + 4 + 16 + 4 + 8
        return generation, nonce, tuple(pids)

    def look(self, own):
        """`own`: processes of the job; others may have acceptor files here, too."""
        for path in self.files():
            if path in self.before:
                continue
            try:
                with open(path, "rb") as file:
                    for offset in (4096, 4096 + (32 << 20)):
                        head = os.pread(file.fileno(), 28, offset)
                        if len(head) < 28 or self.seen.get((path, offset)) == head:
                            continue
                        length, = struct.unpack_from("<I", head, 8)
                        state = os.pread(file.fileno(), length, offset + 28)
                        if os.pread(file.fileno(), 28, offset) != head:
                            continue  # it is being written
                        self.seen[path, offset] = head
                        found = self.roster(state)
                        if found and own.intersection(found[2]):
                            self.said[found[0]].setdefault(found[1:], time.time())
                        elif found and own:
                            self.before.add(path)
            except (OSError, struct.error):
                continue

    def remove(self, own):
        """What processes that were killed have left."""
        self.look(own)
        for path in {path for path, _ in self.seen} - self.before:
            path.unlink(missing_ok=True)

    def newest(self):
        """The newest generation, and its ranks in order."""
        if not self.said:
            return 0, ()
        generation = max(self.said)
        return generation, next(iter(self.said[generation]))[1]
