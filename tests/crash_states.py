"""Builds the states that a power loss may leave of a folder, and runs a command on each.

usage: crash_states.py TRACE FOLDER ANNOUNCEMENT SEED COMMAND...
  TRACE         what `strace -f -y -xx -s 100000000` wrote of the calls of crash_states.sh
  FOLDER        the folder whose changes count; it was empty when the trace began
  ANNOUNCEMENT  a pattern of the log: its group is the number of a step from when on it may not be lost
  COMMAND       is run with the folder of a state and the number of the last step announced before (-1: none). Exit status 0:
                the state is accepted.

After each call, the state on the disk has all changes that were synchronised before, and any of the others: data by fsync of the
file, names by fsync of their folder (Pillai et al. 2014, OSDI: ALICE). For each call these sets of the others are tried: all,
none, each one alone, all but each one, and random ones. The data of a file counts as a few parts. Equal states are tried once. A
rename is never half done. A change whose file or name depends on a lost one is lost, too.
"""
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

RANDOM_SETS = 2
MAX_FAILED = 5  # then the rest is not tried
PARTS = 6  # of the data of a file that are lost or kept together
FOREVER = 1 << 60


def decode(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Change:
    """One change of a file's data or of a folder's names, made at `time`. From `synced` on it is on the disk."""

    def __init__(self, kind, inode, **rest):
        self.kind, self.inode, self.synced = kind, inode, FOREVER
        self.__dict__.update(rest)


class Trace:
    """Changes of a folder, in order; the time counts changes, synchronisations and announcements."""

    def __init__(self, path, folder, announcement):
        self.folder = folder.encode()
        self.announcement = re.compile(announcement)
        self.changes, self.time = [], 0
        self.announced = {0: -1}  # time -> step
        self.inodes, self.parents, self.count = {self.folder: 0}, {0: None}, 0
        self.offsets = {}
        self.started = {}
        self.read(path)

    def read(self, path):
        begun = {}
        for line in open(path, errors="replace"):
            thread, _, call = line.rstrip("\n").partition(" ")
            call = call.strip()
            if call.endswith("<unfinished ...>"):
                begun[thread] = call[: -len("<unfinished ...>")].rstrip()
                self.started[thread] = len(self.changes)
                continue
            resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", call)
            if resumed:
                call = begun.pop(thread, "") + resumed[1]
            else:
                self.started[thread] = len(self.changes)
            match = re.match(r"(\w+)\((.*)\) += (\S+?)(<.*>)?( .*)?$", call)
            if match and not match[3].startswith("-") and match[3] != "?":
                self.call(thread, match[1], match[2], match[3], match[4])

    def tick(self):
        self.time += 1
        self.announced[self.time] = self.announced[self.time - 1]

    def add(self, change):
        self.tick()
        change.time = self.time
        self.changes.append(change)

    def inside(self, path):
        return path == self.folder or path.startswith(self.folder + b"/")

    def entry(self, path):
        """Inode of the parent folder, and name."""
        parent, name = os.path.split(path)
        return self.inodes.get(parent), name

    def forget(self, path):
        for known in [p for p in self.inodes if p == path or p.startswith(path + b"/")]:
            del self.inodes[known]

    def create(self, path, is_folder):
        self.count += 1
        parent, name = self.entry(path)
        self.inodes[path] = self.count
        self.add(Change("create", parent, name=name, made=self.count, is_folder=is_folder))

    def sync(self, inode, thread):
        """Marks the changes that were complete when the call began: they are on the disk when it returns."""
        self.tick()
        for change in self.changes[: self.started[thread]]:
            if inode in (change.inode, getattr(change, "to", None)):
                change.synced = min(change.synced, self.time)

    def paths(self, arguments):
        """Paths of a call: a descriptor's folder is joined to a relative one."""
        found = []
        for descriptor, text in re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', arguments):
            path = decode(text)
            if not path.startswith(b"/"):
                path = os.path.join(decode(descriptor) if descriptor else self.cwd, path)
            found.append(os.path.normpath(path))
        return found

    cwd = os.getcwd().encode()

    def call(self, thread, name, arguments, result, result_path):
        if name in ("write", "pwrite64", "writev", "pwritev", "pwritev2"):
            return self.write(name, arguments, int(result))
        if name in ("ftruncate", "fallocate", "fsync", "fdatasync", "lseek"):
            path = decode(re.match(r"\d+<([^>]*)>", arguments)[1])
            if not self.inside(path) or path not in self.inodes:
                return
            inode, numbers = self.inodes[path], arguments.split(", ")[1:]
            if name == "lseek":
                self.offsets[arguments.split(",")[0]] = int(result)
            elif name == "ftruncate":
                self.add(Change("truncate", inode, size=int(numbers[0])))
            elif name == "fallocate":
                self.add(Change("extend", inode, size=int(numbers[1]) + int(numbers[2])))
            else:
                self.sync(inode, thread)
            return
        paths = self.paths(arguments)
        if not any(self.inside(p) for p in paths):
            return
        if name in ("openat", "open", "creat"):
            path = decode(result_path[1:-1])
            if "O_CREAT" in arguments and path not in self.inodes:
                self.create(path, False)
            elif "O_TRUNC" in arguments:
                self.add(Change("truncate", self.inodes[path], size=0))
            self.offsets[f"{result}{result_path}"] = 0
        elif name in ("mkdir", "mkdirat"):
            self.create(paths[0], True)
        elif name in ("rename", "renameat", "renameat2"):
            source, target = paths
            (parent, old), (to, new) = self.entry(source), self.entry(target)
            self.add(Change("rename", parent, name=old, to=to, new=new))
            self.forget(target)
            for known in [p for p in self.inodes if p == source or p.startswith(source + b"/")]:
                self.inodes[target + known[len(source):]] = self.inodes.pop(known)
        elif name in ("unlink", "unlinkat", "rmdir"):
            parent, old = self.entry(paths[0])
            self.add(Change("unlink", parent, name=old))
            self.forget(paths[0])
        elif name in ("link", "linkat"):
            to, new = self.entry(paths[1])
            self.inodes[paths[1]] = self.inodes[paths[0]]
            self.add(Change("link", to, name=new, made=self.inodes[paths[0]]))
        else:
            sys.exit(f"a call that is not understood: {name}({arguments[:200]})")

    def write(self, name, arguments, size):
        descriptor = arguments.split(",")[0]
        number, path = re.match(r"(\d+)(?:<([^>]*)>)?", descriptor).groups()
        data = b"".join(decode(text) for text in re.findall(r'"([^"]*)"', arguments))[:size]
        if number in ("1", "2"):
            for said in self.announcement.findall(data.decode(errors="replace")):
                self.tick()
                self.announced[self.time] = int(said)
            return
        path = decode(path or "")
        if not self.inside(path) or path not in self.inodes:
            return
        if name.startswith("p"):
            begin = int(arguments.rsplit(", ", 1)[1])
        else:
            begin = self.offsets.get(descriptor, 0)
            self.offsets[descriptor] = begin + size
        self.add(Change("data", self.inodes[path], begin=begin, bytes=data))


def state_of(changes):
    """Path -> bytes, or None for a folder, of the tree that these changes make of an empty folder."""
    names, data = {0: {}}, {}
    for change in changes:
        if change.kind == "create":
            if change.inode not in names:
                continue
            names[change.inode][change.name] = change.made
            if change.is_folder:
                names[change.made] = {}
            else:
                data.setdefault(change.made, bytearray())
        elif change.kind == "link":
            if change.inode in names and change.made in data:
                names[change.inode][change.name] = change.made
        elif change.kind == "rename":
            source, target = names.get(change.inode, {}), names.get(change.to)
            if target is not None and change.name in source:
                target[change.new] = source.pop(change.name)
        elif change.kind == "unlink":
            names.get(change.inode, {}).pop(change.name, None)
        elif change.inode in data:
            file = data[change.inode]
            if change.kind == "data":
                end = change.begin + len(change.bytes)
                file.extend(bytes(max(0, end - len(file))))
                file[change.begin:end] = change.bytes
            elif change.kind == "extend":
                file.extend(bytes(max(0, change.size - len(file))))
            else:
                del file[change.size:]
                file.extend(bytes(change.size - len(file)))
    tree = {}

    def walk(inode, path):
        for name, child in sorted(names[inode].items()):
            inner = os.path.join(path, name)
            tree[inner] = None if child in names else bytes(data[child])
            if child in names:
                walk(child, inner)

    walk(0, b"")
    return tree


def parts_of(made, loose):
    """Loose changes as groups: changes of names alone, data of a file in PARTS successive parts."""
    files = {}
    for i in sorted(loose):
        is_name = made[i].kind in ("create", "rename", "unlink", "link")
        files.setdefault(("name", i) if is_name else ("data", made[i].inode), []).append(i)
    for group in files.values():
        size = -(-len(group) // PARTS)
        yield from (set(group[begin:begin + size]) for begin in range(0, len(group), size))


def sets_of(changes, time, chance):
    """Sets of the changes that may be on the disk at a time."""
    made = [change for change in changes if change.time <= time]
    loose = {i for i, change in enumerate(made) if change.synced > time}
    kept = [loose, set()]
    if not made or made[-1].time < time or made[-1].kind != "data":
        for part in parts_of(made, loose):
            kept += [loose - part, part]
    for _ in range(RANDOM_SETS if len(loose) > 2 else 0):
        kept.append({i for i in loose if chance.random() < 0.5})
    for keep in kept:
        yield [change for i, change in enumerate(made) if i not in loose or i in keep], len(loose) - len(keep)


def digest_of(tree, announced):
    digest = hashlib.sha1(str(announced).encode())
    for path, content in tree.items():
        digest.update(path + (b"/" if content is None else hashlib.sha1(content).digest()))
    return digest.digest()


def try_state(tree, announced, command):
    folder = tempfile.mkdtemp(prefix="crash-state-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        for path, content in tree.items():
            whole = os.path.join(folder.encode(), path)
            if content is None:
                os.mkdir(whole)
            else:
                with open(whole, "wb") as file:
                    file.write(content)
        done = subprocess.run([*command, folder, str(announced)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode(errors="replace")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    trace = Trace(sys.argv[1], sys.argv[2], sys.argv[3])
    chance, command = random.Random(int(sys.argv[4])), sys.argv[5:]
    if trace.announced[trace.time] < 0:
        sys.exit("nothing was announced: the pattern does not fit the log")
    seen, failed = set(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = []

        def harvest(keep):
            nonlocal failed
            while len(running) > keep:
                where, future = running.pop(0)
                status, output = future.result()
                if status != 0:
                    failed += 1
                    print(f"FAILED: {where}\n{output}")

        for time in range(trace.time + 1):
            announced = trace.announced[time]
            for changes, lost in sets_of(trace.changes, time, chance):
                tree = state_of(changes)
                digest = digest_of(tree, announced)
                if digest in seen:
                    continue
                seen.add(digest)
                where = f"time {time} of {trace.time}, {lost} changes lost, step {announced} announced"
                running.append((where, pool.submit(try_state, tree, announced, command)))
            harvest(4 * os.cpu_count())
            if failed >= MAX_FAILED:
                break
        harvest(0)
    print(f"{len(trace.changes)} changes, {len(seen)} states, {failed} refused")
    sys.exit(failed > 0)


main()
