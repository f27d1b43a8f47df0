"""Judges programs by tests: one JSON line in, one JSON line out (program.rs).

The supervisor reads the questions. Before it reads the first one it forks two zygotes: one forks a confined process
for each program, the other one for the judge that runs a problem's assertions. A program is therefore never in a
process that has seen a test: it gets its input, or the arguments of a call; outputs and results are compared elsewhere,
as plain data. A program's process can start no process, open no socket and see no file but Python's own.
"""

import ast
import atexit
import builtins
import collections
import contextlib
import ctypes
import decimal
import enum
import fractions
import gc
import importlib.util
import json
import operator
import os
import re
import resource
import select
import signal
import socket
import struct
import symtable
import sys
import sysconfig
import threading
import time
import traceback
import types

# Loaded once, for all programs.
import bisect, cmath, copy, datetime, functools, heapq, io, itertools, marshal, math, random, statistics, string, typing, unittest  # noqa: E401,F401,I001

USUAL = ("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools", "functools")
USUAL += ("operator", "io", "sys", "json", "typing", "decimal", "fractions")
OUTPUT = 16 << 20  # bytes of a program's output
MESSAGE = 64 << 20  # bytes of an argument or a result
SCRATCH = "size=64m,nr_inodes=1024"
SHOWN = 2000  # characters of a traceback
LIBC = ctypes.CDLL(None, use_errno=True)
LINUX = tuple(map(int, re.findall("[0-9]+", os.uname().release)[:2]))
CAPSET = {"x86_64": 126, "aarch64": 91}.get(os.uname().machine)

# Linux's numbers
NEWNS, NEWIPC, NEWUSER, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, NOATIME, NODIRATIME = 1, 2, 4, 8, 32, 1024, 2048
BIND, REC, PRIVATE, RELATIME = 4096, 16384, 1 << 18, 1 << 21
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # on every processor


class Lost(Exception):
    """The other process is gone."""


class Unsupported(Exception):
    """Tests that can't be run from outside of the program."""


# ---- What confines a program ----


def check(result, what):
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def readable():
    """The folders that a Python program must read."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"]
    paths += [os.path.join(p, "lib") for p in (sys.base_prefix, sys.base_exec_prefix)]
    found = sorted({os.path.realpath(p) for p in paths if p and os.path.isdir(p)})
    return [p for p in found if not any(p.startswith(q + "/") for q in found)]


def mount(source, target, kind, flags, data=None):
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    check(LIBC.mount(*encoded, ctypes.c_ulong(flags), data and data.encode()), f"mount {target}")


READABLE = readable()
ROOT = "/proc"  # every machine has it, and nothing that a program may read lies below
# A program's scratch folder: the usual one, unless it would hide a Python that lies there.
OWN = "/scratch" if any(f"{p}/".startswith("/tmp/") for p in READABLE) else "/tmp"


def own_namespaces():
    """Own namespaces of users, mounts, network and IPC, with a root that has the readable folders alone."""
    uid, gid = os.getuid(), os.getgid()
    check(LIBC.unshare(NEWUSER | NEWNS | NEWNET | NEWIPC), "unshare")
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{file}", "w") as out:
            out.write(text)
    mount("none", "/", None, PRIVATE | REC)
    mount("tmpfs", ROOT, "tmpfs", NOSUID | NODEV, "size=1m")
    for path in READABLE:
        inside = ROOT + path
        os.makedirs(inside, exist_ok=True)
        mount(path, inside, None, BIND | REC)
        had = os.statvfs(inside).f_flag  # may not be given up
        flags = had & (NOSUID | NODEV | NOEXEC | NOATIME | NODIRATIME) | (RELATIME if had & 4096 else 0)
        mount(None, inside, None, REMOUNT | BIND | RDONLY | NOSUID | flags)
    for name in ("lib", "lib64"):
        if os.path.islink("/" + name) and not os.path.lexists(f"{ROOT}/{name}"):
            os.symlink(os.readlink("/" + name), f"{ROOT}/{name}")
    os.mkdir(ROOT + OWN)
    mount(None, ROOT, None, REMOUNT | BIND | RDONLY | NOSUID | NODEV)
    os.chroot(ROOT)
    os.chdir("/")


def landlock(scratch):
    """Takes away all files but the readable folders and a scratch folder; `False` where the kernel has no landlock."""
    version = LIBC.syscall(LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    every = (1 << {1: 13, 2: 14}.get(version, 15)) - 1
    network = [3] if version >= 4 else []
    handled = struct.pack("Q" * (1 + len(network)), every, *network)
    rules = check(LIBC.syscall(LANDLOCK_CREATE, handled, len(handled), 0), "landlock")
    for path, access in [(p, 4 | 8) for p in READABLE] + [(p, every) for p in scratch]:  # read files and folders
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        check(LIBC.syscall(LANDLOCK_ADD, rules, 1, struct.pack("<Qi", access, folder), 0), "landlock")
        os.close(folder)
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(LIBC.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock")
    os.close(rules)
    return True


def seccomp(filters):
    """Allows the system calls of the filters alone."""
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for code in filters:
        held = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HP", len(code) // 8, ctypes.addressof(held))
        check(LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(program, len(program)), 0, 0), "seccomp")


def confine(own, limits):
    """What a process gives up before it runs the code of others."""
    if own:
        check(LIBC.unshare(NEWNS), "unshare")
        mount("tmpfs", OWN, "tmpfs", NOSUID | NODEV, SCRATCH)
        os.chdir(OWN)
    locked = limits["landlock"] and landlock([OWN] if own else [])
    if not own and not locked:
        raise OSError("the kernel offers neither namespaces nor landlock")
    check(LIBC.syscall(CAPSET, struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")
    memory, cpu = limits["memory_mb"] << 20, int(limits["cpu_s"]) + 1
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, 32 << 20),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_NPROC, 128)] if own and LINUX >= (5, 14) else []),  # else it counts all processes of the user
    ):
        resource.setrlimit(what, (most, most))
    seccomp(limits["filters"])


# ---- Processes ----


def memfd(content):
    fd = os.memfd_create("fgrpo", os.MFD_CLOEXEC)
    with open(os.dup(fd), "wb") as out:
        out.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def zygote(link, limits, body):
    """Forks a confined process for each message."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.dup2(link.detach(), 3)
    os.closerange(4, 1 << 16)
    link, why, own = socket.socket(fileno=3), "", limits["namespaces"]
    try:
        if own:
            own_namespaces()
    except OSError as error:
        own, why = False, f"{error}; "
    gc.freeze()  # what is loaded isn't searched again when a program ends
    # A trial, so that a machine which can't confine is known before the first program.
    if os.fork() == 0:
        try:
            confine(own, limits)
            os._exit(0)
        except BaseException as error:
            link.send(f"{why}{error}".encode())
            os._exit(1)
    if os.wait()[1] != 0:
        os._exit(1)
    link.send(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(link, 64, 8)
        if not message:
            os._exit(0)
        if (pid := os.fork()) == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            link.close()
            confined(own, {**limits, "cpu_s": float(message)}, fds, body)
        for fd in fds:
            os.close(fd)
        link.send(str(pid).encode())
        _, status, usage = os.wait4(pid, 0)
        link.send(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime]).encode())


def confined(own, limits, fds, body):
    """Runs `body` in a process of its own. Files: input, output, errors, report and perhaps a link, from 0."""
    with open(fds[0], encoding="utf-8", errors="surrogatepass") as given:
        payload = given.read()
    high = [os.dup2(fd, 100 + i) for i, fd in enumerate([fds[1], fds[2], 0, *fds[3:]])]
    for i, fd in enumerate(high):
        os.dup2(fd, i)
    os.closerange(len(high), 1 << 10)
    link, status = socket.socket(fileno=4) if len(high) > 4 else None, 1
    try:
        confine(own, limits)
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace")
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="replace")
        sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="replace")
        status = body(payload, link)
    except MemoryError:
        os.write(3, b'{"error": "MemoryError"}\n')
    except BaseException as error:
        with contextlib.suppress(BaseException):
            tell(**described(error))
    for out in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(BaseException):
            out.flush()
    os._exit(status)


def described(error):
    text = "".join(traceback.format_exception(error))
    return {"error": type(error).__name__, "text": text[-SHOWN:]}


def tell(**said):
    """A line of this process's report."""
    os.write(3, json.dumps(said).encode() + b"\n")


class Zygote:
    """The supervisor's side of a zygote."""

    def __init__(self, limits, body):
        self.link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            zygote(other, limits, body)
        other.close()
        said = self.link.recv(4096).decode()
        if said != "ready":
            raise OSError(said or "the process that was to be confined ended")

    def start(self, payload, given=b"", cpu_s=1.0, link=None):
        return Process(self.link, payload, given, cpu_s, link)


class Process:
    """A confined process: its output, its report and, at the end, its status."""

    def __init__(self, zygote_link, payload, given, cpu_s, link):
        self.zygote = zygote_link
        self.out, out = os.pipe()
        self.report, report = os.pipe()
        payload = payload.encode("utf-8", "surrogatepass")
        sent = [memfd(payload), memfd(given), out, report] + ([link.detach()] if link else [])
        socket.send_fds(zygote_link, [str(cpu_s).encode()], sent)
        for fd in sent:
            os.close(fd)
        self.pid = int(self.received())
        self.read = {self.out: bytearray(), self.report: bytearray()}
        self.open = {self.out, self.report}
        self.status, self.cpu_s, self.overflow = None, 0.0, False

    def received(self):
        if not (said := self.zygote.recv(256)):
            raise Lost("the sandbox's process ended")
        return said

    def sources(self):
        """What to wait for: pipes, and the status while it is unknown."""
        return [*self.open] + ([self.zygote] if self.status is None else [])

    def take(self, ready):
        """Reads what is there."""
        for fd in self.open & set(ready):
            piece = os.read(fd, 1 << 16)
            self.read[fd] += piece
            if not piece:
                self.open.discard(fd)
            elif len(self.read[fd]) > OUTPUT and not self.overflow:
                self.overflow = True
                self.kill()
        if self.zygote in ready and self.status is None:
            self.status, self.cpu_s = json.loads(self.received())

    def wait(self, until):
        """Waits for its end; kills it at a time."""
        while self.status is None and (left := until - time.monotonic()) > 0:
            self.take(select.select(self.sources(), [], [], left)[0])
        return self.close()

    def close(self):
        """Ends it, and reads the rest. Whether it had to be ended."""
        late = self.status is None
        if late:
            self.kill()
        while self.status is None or self.open:
            self.take(select.select(self.sources(), [], [])[0])
        for fd in self.read:
            os.close(fd)
        return late

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reported(self, most=-1):
        """The reports' lines."""
        said = []
        for line in bytes(self.read[self.report]).split(b"\n", most)[:-1]:
            with contextlib.suppress(ValueError):
                said.append(json.loads(line))
        return [s for s in said if isinstance(s, dict)]

    def failure(self, late, limit):
        """Why the program failed, if it did, and with which words."""
        told = next((s for s in self.reported(1000) if "error" in s), None)
        if self.overflow:
            return {"reason": "error", "text": f"more than {OUTPUT >> 20} MB of output"}
        if late or self.status == -signal.SIGXCPU or self.cpu_s > limit:
            return {"reason": "time"}
        if told:
            name, text = told["error"], str(told.get("text", ""))
            return {"reason": REASONS.get(name, "error"), "text": text, "syntax": name in SYNTAX}
        if self.status == -signal.SIGKILL:  # not by us
            return {"reason": "memory"}
        if self.status:
            how = "signal" if self.status < 0 else "status"
            return {"reason": "error", "text": f"ended with {how} {abs(self.status)}"}
        return None


REASONS = {"MemoryError": "memory", "PermissionError": "forbidden"}
SYNTAX = ("SyntaxError", "IndentationError", "TabError")

# ---- In the program's process ----


def usual_names():
    """What graders of programming contests import before a program: these modules, and their names but for built-in ones."""
    modules = {name: importlib.import_module(name) for name in USUAL}
    names = {}
    for module in modules.values():
        public = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        names.update({name: getattr(module, name) for name in public if not hasattr(builtins, name)})
    return {**names, **modules}


def run_program(payload, link):
    """Runs a program with its input; or, with a link, defines its functions and answers calls."""
    header, source, classes = json.loads(payload)
    sys.argv = ["program.py"]
    main = types.ModuleType("__main__" if link is None else "program")
    # As built-in names, so that what is listed as the program's own is what it defines or imports.
    main.__builtins__ = {**vars(builtins), **usual_names()}
    sys.modules[main.__name__] = main
    atexit._clear()
    try:
        if header:
            exec(compile(header, "header.py", "exec"), main.__dict__)
        exec(compile(source, "program.py", "exec"), main.__dict__)
        if link is not None:
            Served(link, main.__dict__, classes).answer_all()
    except SystemExit as error:
        if link is not None:
            raise
        if error.code not in (None, 0):
            return 1
    except MemoryError:
        main.__dict__.clear()
        raise
    finally:
        if link is None:
            end_interpreter(main)
    return 0


def end_interpreter(main):
    """Does what an interpreter does when it ends: waits for threads, calls what was registered, closes open files."""
    threading._shutdown()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    main.__dict__.clear()
    gc.collect()


# ---- Values between a program and its judge ----

SEQUENCES = {"l": list, "t": tuple, "s": set, "z": frozenset, "q": collections.deque}
DICTS = {"o": collections.OrderedDict, "k": collections.Counter, "d": dict}
PLAIN = (complex, decimal.Decimal, fractions.Fraction, range, datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
PLAIN = {c.__name__: c for c in PLAIN}


def encode(value, other, depth=0):
    """A value as JSON. What isn't plain data becomes what `other` makes of it."""
    if depth > 200:
        raise ValueError("nested more than 200 deep")
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    for base in (int, float, str):  # enumerations and other subclasses
        if issubclass(kind, base):
            return base(value)
    inner = lambda x: encode(x, other, depth + 1)  # noqa: E731
    for name, base in DICTS.items():
        if issubclass(kind, base):
            return [name, [[inner(k), inner(v)] for k, v in base.items(value)]]
    for name, base in SEQUENCES.items():
        if issubclass(kind, base):
            return [name, [inner(x) for x in base.__iter__(value)]]
    if kind in (bytes, bytearray):
        return ["b" if kind is bytes else "B", value.hex()]
    if PLAIN.get(kind.__name__) is kind:
        args = value.__getnewargs__() if kind is complex else value.__reduce__()[1]
        return ["p", kind.__name__, [inner(x) for x in args]]
    if kind.__module__ == "numpy":
        numpy = sys.modules["numpy"]
        if issubclass(kind, numpy.generic):
            return inner(value.item())
        if issubclass(kind, numpy.ndarray) and value.dtype.kind in "iufb":
            return ["n", value.dtype.str, value.tolist()]
    return other(value)


def decode(value, other):
    """The value of [`encode`]'s JSON."""
    if not isinstance(value, list):
        return value
    name, rest = value[0], value[1:]
    inner = lambda x: decode(x, other)  # noqa: E731
    if name in DICTS:
        made = DICTS[name]()
        made.update({inner(k): inner(v) for k, v in rest[0]})
        return made
    if name in SEQUENCES:
        return SEQUENCES[name]([inner(x) for x in rest[0]])
    if name in "bB":
        return (bytes if name == "b" else bytearray).fromhex(rest[0])
    if name == "n":
        if not (re.fullmatch("[<>|=][iufb][0-9]+", rest[0]) and importlib.util.find_spec("numpy")):
            raise ValueError("array of another type")
        return importlib.import_module("numpy").array(rest[1], dtype=rest[0])
    return PLAIN[rest[0]](*map(inner, rest[1])) if name == "p" else other(name, *rest)


class Copies:
    """The values of one exchange. Objects of the prompt's classes are copied, and what the callee changes is copied back."""

    def __init__(self, classes, out, into):
        self.classes, self.out, self.into, self.items, self.indices = classes, out, into, [], {}

    def encoded(self, **values):
        said = {name: encode(value, self.other) for name, value in values.items()}
        # The list grows: objects refer to others.
        said["objects"] = [[self.name(type(x)), encode(vars(x), self.other)] for x in self.items]
        return said

    def decoded(self, said, name):
        for kind, _ in said["objects"][len(self.items) :]:
            self.other(object.__new__(self.classes(kind)))
        for item, (_, state) in zip(self.items, said["objects"]):
            state = decode(state, self.known)
            vars(item).clear()
            vars(item).update(state)
        said["objects"] = []
        return decode(said[name], self.known)

    def name(self, kind):
        return next((c.__name__ for c in kind.__mro__ if self.classes(c.__name__)), None)

    def other(self, value):
        if isinstance(value, type) and self.classes(value.__name__):
            return ["K", value.__name__]
        if (kind := self.name(type(value))) is None or not hasattr(value, "__dict__"):
            return self.out(value)
        if isinstance(value, enum.Enum):
            return ["E", kind, value.name]
        if self.indices.setdefault(id(value), len(self.items)) == len(self.items):
            self.items.append(value)
        return ["O", self.indices[id(value)]]

    def known(self, name, which, *rest):
        if name == "O":
            return self.items[which]
        if name in ("K", "E"):
            return self.classes(which)[rest[0]] if rest else self.classes(which)
        return self.into(name, which, *rest)


class Line:
    """JSON lines over a socket."""

    def __init__(self, link):
        self.reads, self.writes = link.makefile("rb"), link.makefile("wb")

    def send(self, **said):
        try:
            self.writes.write(json.dumps(said).encode() + b"\n")
            self.writes.flush()
        except OSError:
            raise Lost from None

    def receive(self):
        try:
            line = self.reads.readline(MESSAGE)
        except OSError:
            raise Lost from None
        if not line.endswith(b"\n"):
            raise Lost
        return json.loads(line)


def raised(error):
    """An exception for the other side: the names of its classes and its text."""
    return {"raise": [[c.__name__ for c in type(error).__mro__], str(error)[:SHOWN]], "text": described(error)["text"]}


ORDER = ("lt", "le", "gt", "ge")
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor")
JOINED = (*ORDER, *BINARY, *("i" + name for name in BINARY))
FUNCTIONS = ("getattr", "setattr", "delattr", "len", "iter", "next", "str", "repr", "bool", "int", "float", "hash", "abs", "round")
OPERATIONS = {
    "call": lambda f, *a, **k: f(*a, **k),
    "isinstance": lambda c, x: isinstance(x, c),
    "enter": lambda c: type(c).__enter__(c),
    "exit": lambda c: type(c).__exit__(c, None, None, None),
    **{name: getattr(builtins, name) for name in (*FUNCTIONS, "reversed", "format")},
    **{name: getattr(operator, f"__{name}__") for name in ("getitem", "setitem", "delitem", "eq", "contains", "neg", "pos", "invert", *JOINED)},
}


class Served:
    """The program's side: answers what the judge asks."""

    def __init__(self, link, names, classes):
        self.line, self.names, self.objects = Line(link), names, []
        self.copies = lambda: Copies(lambda name: self.names.get(name) if name in classes else None, self.kept, self.theirs)

    def answer_all(self):
        classes = lambda kind: [c.__name__ for c in kind.__mro__] if isinstance(kind, type) and issubclass(kind, Exception) else []  # noqa: E731
        kinds = {name: [isinstance(value, types.ModuleType), classes(value)] for name, value in list(self.names.items())}
        self.line.send(names=kinds)
        with contextlib.suppress(Lost):
            while True:
                self.line.send(**self.answer(self.line.receive()))

    def answer(self, asked):
        try:
            copies = self.copies()
            if "get" in asked:
                return copies.encoded(value=self.names[asked["get"]])
            args, named = copies.decoded(asked, "args"), copies.decoded(asked, "named")
            value = OPERATIONS[asked["do"]](*args, **named)
            # Arguments may have been changed in place.
            return copies.encoded(value=value, args=args if asked["do"] == "call" else [])
        except Lost:
            raise
        except BaseException as error:
            return raised(error)

    def kept(self, value):
        self.objects.append(value)
        return ["h", len(self.objects) - 1, type(value).__name__]

    def theirs(self, name, which):
        if name == "r":
            return self.objects[which]
        if name == "u":
            return getattr(builtins, which)
        return lambda *args: self.call_back(which, args)

    def call_back(self, which, args):
        copies = self.copies()
        self.line.send(callback=which, **copies.encoded(args=args))
        while "do" in (said := self.line.receive()):
            self.line.send(**self.answer(said))
        if "raise" in said:
            raise next(vars(builtins)[name] for name in said["raise"][0] if name in vars(builtins))(said["raise"][1])
        return copies.decoded(said, "value")


# ---- In the judge's process ----


class Judge:
    """Runs assertions. What the program defines is used through proxies."""

    def __init__(self, link):
        self.line, self.functions, self.classes, self.errors, self.kinds, self.classy = Line(link), [], {}, {}, {}, set()
        self.asked = self.failed = False  # whether the program was asked anything, and raised an exception
        judge = self

        class Proxy:
            """An object in the program. It never decides a comparison with a test's own value."""

            __slots__ = ("which",)

            def __init__(self, which):
                object.__setattr__(self, "which", which)

            def __eq__(self, other):
                return isinstance(other, Proxy) and judge.ask("eq", self, other) is True

            def __instancecheck__(self, value):
                return isinstance(value, Proxy) and judge.ask("isinstance", self, value) is True

            def __exit__(self, *error):
                return judge.ask("exit", self)

            def __contains__(self, item):
                return judge.ask("contains", self, item) is True if judge.mixes(self) else any(item == x for x in iter(self))

        def asked(name):
            return lambda self, *args, **named: judge.ask(name, self, *args, **named)

        def joined(name, swapped=False):
            def operation(self, other):
                if isinstance(other, Proxy) or name not in ORDER and judge.mixes(self):
                    return judge.ask(name, *((other, self) if swapped else (self, other)))
                return NotImplemented

            return operation

        for name in OPERATIONS.keys() - {"isinstance", "eq", "contains", "exit"}:
            setattr(Proxy, f"__{name}__", joined(name) if name in JOINED else asked(name))
        for name in BINARY:
            setattr(Proxy, f"__r{name}__", joined(name, swapped=True))
        self.Proxy = Proxy
        self.copies = lambda: Copies(self.classes.get, self.ours, self.theirs)

    def mixes(self, proxy):
        # Only if tests name its class: `abs(f(1) - 2.5) < 1e-6` mustn't accept an object whose difference to all is 0.
        return type(proxy).__name__ in self.classy

    def ask(self, do, *args, **named):
        self.asked, copies = True, self.copies()
        self.line.send(do=do, **copies.encoded(args=list(args), named=named))
        said = self.answer(do == "next")
        value = copies.decoded(said, "value")
        for mine, theirs in zip(args, copies.decoded(said, "args")):
            replace(mine, theirs)
        return value

    def answer(self, iterates=False):
        while "callback" in (said := self.line.receive()):
            try:
                copies = self.copies()
                value = self.functions[said["callback"]](*copies.decoded(said, "args"))
                self.line.send(**copies.encoded(value=value))
            except Exception as error:
                self.line.send(**raised(error))
        if "raise" in said:
            self.failed, (names, text) = True, said["raise"]
            kind = self.error(names)
            # An iteration of the tests mustn't end because a function of the program raises this.
            kind = RuntimeError if issubclass(kind, StopIteration) and not iterates else kind
            try:
                error = kind(text)
            except Exception:  # such as UnicodeDecodeError, which takes five
                error = RuntimeError(text)
            error.program = {"error": names[0], "text": str(said.get("text", ""))[-SHOWN:]}
            raise error
        return said

    def error(self, names):
        """The exception class of the first name, which is derived from those of the others."""
        name = names[0] if names else "RuntimeError"
        known = self.classes.get(name) or self.errors.get(name) or getattr(builtins, name, None)
        if not (isinstance(known, type) and issubclass(known, Exception)):
            known = self.errors[name] = RuntimeError if name == "BaseException" else type(name, (self.error(names[1:]),), {})
        return known

    def ours(self, value):
        if isinstance(value, self.Proxy):
            return ["r", value.which]
        if getattr(builtins, getattr(value, "__name__", ""), None) is value:
            return ["u", value.__name__]
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, functools.partial)):
            self.functions.append(value)
            return ["j", len(self.functions) - 1]
        if isinstance(value, (collections.abc.Iterator, collections.abc.MappingView)):
            return encode(list(value), self.ours)
        raise Unsupported(f"a {type(value).__name__} of the tests can't be given to a program")

    def theirs(self, name, which, kind):
        if name != "h" or not isinstance(which, int) or kind in self.classes:
            raise ValueError("an unknown value")
        if kind not in self.kinds:
            self.kinds[kind] = type(kind, (self.Proxy,), {"__slots__": ()})
        return self.kinds[kind](which)

    def find(self, names, free, entry):
        """Adds what tests find by name: the program's definitions, and modules that it imports. Whether it has any."""
        # Tests ask for names that Python lacks, or else for those of usual imports, or else for built-in ones.
        kinds, usual = self.line.receive()["names"], names["__builtins__"]
        free = free - names.keys() - NUMPY
        rank = lambda n: 2 if n not in usual else 0 if hasattr(builtins, n) else 1 - 2 * isinstance(usual[n], types.ModuleType)  # noqa: E731
        most = 2 if entry else max(map(rank, free.difference(COMPARING) or free), default=2)
        asked = {name for name in free if rank(name) == most} | {entry, "Solution"}
        self.classy = {name for name in asked - {entry, "Solution", None} if name[:1].isupper()}
        for name in asked & kinds.keys() - names.keys():
            module, exceptions = kinds[name]
            if exceptions:
                names[name] = self.error(exceptions)
            elif module and name in sys.stdlib_module_names:
                names[name] = importlib.import_module(name)
            else:
                self.line.send(get=name)
                names[name] = self.copies().decoded(self.answer(), "value")
                self.asked |= not isinstance(names[name], self.Proxy)
        return bool(entry or asked & kinds.keys())


# Names of the standard library with which asserts compare results. A program mustn't put its own under the tests.
COMPARING = ("Counter", "OrderedDict", "Decimal", "Fraction", "isclose", "fabs", "ceil", "floor", "sqrt", "deepcopy")
NUMPY = {"np", "numpy"}


def replace(mine, theirs):
    """Changes an argument as the program changed its copy."""
    if isinstance(mine, (list, bytearray, dict, set, collections.deque)) and type(mine) is type(theirs) and mine != theirs:
        mine.clear()
        getattr(mine, "extend", getattr(mine, "update", None))(theirs)


def run_tests(spec, link):
    """Runs the assertions of a problem. Reports each start, and the first failure."""
    spec = json.loads(spec)
    header, setup, *codes = marshal.loads(bytes.fromhex(spec["codes"]))
    judge, entry, free = Judge(link), spec["entry"], set(spec["free"])
    sys.stdout = sys.__stdout__ = sys.stderr = type("Nowhere", (io.TextIOBase,), {"write": lambda self, text: len(text)})()
    unittest.main = lambda *args, **named: None  # as if another program ran the tests
    ran, test, own = itertools.count(), 0, True  # whether what runs is the problem's own
    names = {"__name__": "__main__", "__builtins__": {**vars(builtins), **usual_names()}, "__ran__": ran.__next__}
    try:
        exec(header, names)
        names.update({name: importlib.import_module("numpy") for name in free & NUMPY})
        judge.classes, own = {name: names[name] for name in spec["classes"]}, False
        found = judge.find(names, free, entry)
        function = names.get(entry)
        if entry and function is None:
            if "Solution" not in names:
                raise NameError(f"name {entry!r} is not defined")
            function = getattr(names["Solution"](), entry)
        names["candidate"], own = function, True
        exec(setup, names)
        for test, code in enumerate(codes):
            tell(test=test)
            exec(code, names)
        run_defined(names, spec, function)
        for call in revived(spec["calls"]):
            test = call["test"]
            tell(test=test)
            result, wanted = function(*call["args"]), call["output"]
            if not (same(result, wanted) or call["wrapped"] and same(result, wanted[0])):
                raise AssertionError(f"{call['args']} gives another result than {call['output']}")
        if not found:
            raise NameError("the program defines none of the names that the tests use")
        if not (next(ran) or judge.failed or spec["calls"]):
            raise AssertionError("no assertion ran") if judge.asked else Unsupported("no assertion ran")
    except BaseException as error:
        said = getattr(error, "program", None) or described(error)
        if isinstance(error, Unsupported) or own and isinstance(error, ImportError) and not hasattr(error, "program"):
            tell(unscorable=f"bad_tests: {error}")
        else:
            reasons = {"AssertionError": "wrong_answer", "Lost": "lost", **REASONS}
            tell(failed=test, reason=reasons.get(said["error"], "error"), text=said["text"])
    else:
        tell(passed=True)
    return 0


def run_defined(names, spec, function):
    """Runs what tests define and leave to a runner: `check`, and functions and classes as pytest and unittest find them."""

    def run(test, *given):
        if getattr(test, "pytestmark", None) or test.__code__.co_argcount - len(test.__defaults__ or ()) != len(given):
            raise Unsupported(f"{test.__name__} has arguments of pytest")
        test(*given)

    for name in spec["bound"]:
        test = names.get(name)
        if isinstance(test, type) and issubclass(test, unittest.TestCase):
            unittest.defaultTestLoader.loadTestsFromTestCase(test).debug()
        elif isinstance(test, type) and name.startswith("Test"):
            for method in [method for key, method in vars(test).items() if key.startswith("test")]:
                run(method, test())
        elif isinstance(test, types.FunctionType) and name not in spec["used"]:
            if name == "check" and function:
                test(function)
            elif name.startswith("test_"):
                run(test)


def same(found, wanted):
    """Whether a result is the wanted one, which was written as JSON: tuples are lists there."""
    if isinstance(found, (list, tuple)) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        named = {k if isinstance(k, str) else json.dumps(k): v for k, v in found.items()}
        return len(named) == len(found) and named.keys() == wanted.keys() and all(same(named[k], wanted[k]) for k in named)
    if type(wanted) is float and type(found) in (int, float):
        return close(found, wanted)
    if type(wanted) is int and type(found) is float:
        return found == wanted
    return type(found) is type(wanted) and found == wanted


def close(found, wanted):
    """Whether two finite numbers agree to six digits; for zero, to nine decimals."""
    try:
        return math.isfinite(wanted) and math.isclose(found, wanted, rel_tol=1e-6, abs_tol=0.0 if wanted else 1e-9)
    except OverflowError:  # an integer that no float holds
        return False


def revived(value):
    """A value with its integers of more than 64 bits, which arrive as marked strings."""
    if isinstance(value, list):
        return [revived(x) for x in value]
    if isinstance(value, dict):
        return {revived(k): revived(v) for k, v in value.items()}
    if isinstance(value, str) and value.startswith(MARK):
        return int(value[len(MARK) :])
    return value


MARK = "\ufdd0number:"

# ---- The supervisor ----

NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
SHORT = re.compile(r"[+-]?[0-9]*\.?[0-9]{0,3}")


def same_output(found, wanted):
    """Whether outputs agree: line by line, word by word."""
    found, wanted = found.strip(), wanted.strip()
    if found.count("\n") != wanted.count("\n"):
        return False
    words = lambda line: re.findall(r"[^ \t\r\f\v]+", line)  # noqa: E731
    return all(f == w or same_line(words(f), words(w)) for f, w in zip(found.split("\n"), wanted.split("\n")))


def same_line(found, wanted):
    # Beside words, a number of few digits may be a version: 2.10 isn't 2.1.
    words = wanted[:1] != ["Case"] and not all(map(NUMBER.fullmatch, wanted))
    return len(found) == len(wanted) and all(same_word(f, w, words) for f, w in zip(found, wanted))


def same_word(found, wanted, words):
    """Whether words are equal, or are numbers of equal value: exactly for a whole number, else to six digits."""
    if found == wanted:
        return True
    if not (NUMBER.fullmatch(wanted) and NUMBER.fullmatch(found)) or re.match("[+-]?0[0-9]", wanted):
        return False
    if words and SHORT.fullmatch(wanted):
        return False
    if not re.search("[.eE]", wanted):
        return re.fullmatch(re.escape(wanted) + r"\.0*", found) is not None
    return close(float(found), float(wanted))


class Supervisor:
    def __init__(self, limits):
        self.timeout = limits["timeout_s"]
        self.programs, self.judges = Zygote(limits, run_program), Zygote(limits, run_tests)

    def verdict(self, problem, source):
        header, entry = problem["header"] or "", problem["entry"] or ""
        tests = prepared(header, entry, problem["setup"], tuple(problem["asserts"]))
        if "unscorable" in tests:
            return tests
        said = self.judged(problem, tests, with_header(source, header, entry, tests))
        if said.pop("syntax", False) and not problem["fenced"]:
            return wrong("no_code")
        return said

    def judged(self, problem, tests, program):
        until = time.monotonic() + 10 * self.timeout
        for test, pair in enumerate(problem["pairs"]):
            process = self.programs.start(program, pair["input"].encode(), self.timeout)
            late = process.wait(self.wall(until))
            output = bytes(process.read[process.out]).decode(errors="replace")
            if failure := process.failure(late, self.timeout):
                return wrong(test=test, **failure)
            if not same_output(output, pair["output"]):
                return wrong("wrong_answer", test)
        if problem["asserts"] or problem["calls"]:
            return self.run_tests(program, problem, tests, until)
        return {"score": 1.0, "reason": "passed"}

    def wall(self, until):
        """When a test ends. Processor time is what is limited: other work on the machine mustn't count."""
        return min(time.monotonic() + 2 * self.timeout + 1, until)

    def run_tests(self, program, problem, tests, until):
        ours, theirs = socket.socketpair()
        program = self.programs.start(program, cpu_s=10 * self.timeout, link=theirs)
        spec = json.dumps({**tests, "calls": problem["calls"], "entry": problem["entry"]})
        judge = self.judges.start(spec, cpu_s=10 * self.timeout, link=ours)
        end, seen = self.wall(until), 0
        while judge.status is None and (left := end - time.monotonic()) > 0:
            ready = select.select(judge.sources() + program.sources(), [], [], left)[0]
            judge.take(ready)
            program.take(ready)
            if (now := len(judge.read[judge.report])) != seen:
                end, seen = self.wall(until), now
        late = judge.close()
        program.close()
        said = judge.reported()
        last = said[-1] if said else {}
        test = next((s["test"] for s in reversed(said) if "test" in s), 0)
        if "unscorable" in last:
            return {"unscorable": last["unscorable"]}
        if last.get("passed") is True:
            return {"score": 1.0, "reason": "passed"}
        if "reason" in last and last["reason"] != "lost":
            return wrong(last["reason"], last["failed"], last.get("text", ""))
        if not late and "reason" not in last:
            return {"unscorable": f"judge_died: {last.get('text', '')}".strip()}
        ended = {"reason": "error", "text": "the program ended before its tests did"}
        return wrong(test=test, **(program.failure(late, 10 * self.timeout) or ended))


def wrong(reason, test=None, text="", **more):
    said = {"score": 0.0, "reason": reason, **more}
    if test is not None:
        said["test"] = test
    if text:
        said["printed"] = text[-SHOWN:]
    return said


class Counting(ast.NodeTransformer):
    """Counts the checks of tests when they run: assertions, conditions for `raise`, and calls such as `self.assertEqual`."""

    def visit(self, node):
        if isinstance(node, ast.expr):
            return node
        self.generic_visit(node)
        parts = [item.context_expr for item in node.items] if isinstance(node, ast.With) else [getattr(node, "value", None)]
        called = [getattr(part.func, "attr", getattr(part.func, "id", "")) for part in parts if isinstance(part, ast.Call)]
        raises = isinstance(node, ast.If) and any(isinstance(n, ast.Raise) for n in ast.walk(node))
        if isinstance(node, ast.Assert) or raises or any(re.match("assert|fail|raises", name) for name in called):
            self.found = True
            return [ast.Expr(ast.Call(ast.Name("__ran__", ast.Load()), [], [])), node]
        return node


# What acts inside of the tests' process, where no program is.
REACHING = {"patch", "mock", "Mock", "MagicMock", "redirect_stdout", "tempfile", "open"}


@functools.lru_cache(64)
def prepared(header, entry, setup, asserts):
    """What the prompt defines but for the function that is asked for, and the tests: compiled, with the names that they use."""
    definitions, readable = [], False
    for text in (header, header.rstrip() + "\n    pass\n"):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            definitions, readable = [n for n in ast.parse(text).body if getattr(n, "name", None) not in (entry, "Solution")], True
            break
    counting, codes, bound, used, imported = Counting(), [], {}, set(), set()
    try:
        codes.append(compile(ast.Module(definitions, []), "header.py", "exec"))
        for text in (setup, *asserts):
            codes.append(compile(ast.fix_missing_locations(counting.visit(ast.parse(text))), "test.py", "exec"))
            tables = [symtable.symtable(text, "test.py", "exec")]
            for table in tables:
                tables += table.get_children()
                for symbol in table.get_symbols():
                    name, top = symbol.get_name(), table is tables[0]
                    imported |= {name} if symbol.is_imported() else set()
                    if top and (symbol.is_assigned() or symbol.is_imported()):
                        bound[name] = None
                    if symbol.is_referenced() and (top or symbol.is_global()):
                        used.add(name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"unscorable": f"bad_tests: {error}"}
    free = used - bound.keys()
    outline = set() if readable else {n for pair in re.findall(r"(?m)^(?:(?:async )?def|class) +(\w+)|^(\w+) *=", header) for n in pair}
    if lost := outline & free - {entry}:
        return {"unscorable": f"bad_prompt: tests use {min(lost)} of a prompt that this Python can't parse"}
    if asserts and not (hasattr(counting, "found") and (entry or free)):
        return {"unscorable": "bad_tests: no assertion"}
    if reaching := REACHING & (imported | free & {"open"}):
        return {"unscorable": f"bad_tests: {min(reaching)} acts outside of the program"}
    header, classes = ast.Module(definitions, []), [node.name for node in definitions if isinstance(node, ast.ClassDef)]
    return {"header": ast.unparse(header), "codes": marshal.dumps(codes).hex(), "classes": classes, "free": [*free], "bound": [*bound], "used": [*used]}


def with_header(source, header, entry, tests):
    """What is run before a program, the program, and the prompt's classes. A function's body alone follows the prompt."""
    if header and entry and not re.search(rf"^[ \t]*(async\s+)?def\s+{re.escape(entry)}\b", source, re.M):
        return json.dumps(["", header.rstrip("\n") + "\n" + source, tests["classes"]])
    return json.dumps([tests["header"], source, tests["classes"]])


def main():
    limits = json.loads(sys.argv[1])
    if limits.pop("restart", False):
        # Without the user's environment, which may hold secrets; with one order of sets for all programs.
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
        arguments = [*sys.orig_argv[1:-1], json.dumps(limits)]
        os.execve(sys.executable, [sys.executable, "-sB", *arguments], {**kept, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"})
    sys.path[:] = [p for p in sys.path if p]
    limits["filters"] = [bytes.fromhex(f) for f in limits["filters"]]
    limits["cpu_s"] = 1.0
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.set_int_max_str_digits(0)
    try:
        supervisor = Supervisor(limits)
    except OSError as error:
        sys.exit(f"code: programs can't be confined on this machine: {error}")
    for line in sys.stdin.buffer:
        question = json.loads(line)
        said = supervisor.verdict(question["problem"], question["completion"])
        print(json.dumps({"id": question["id"], **said}), file=answers, flush=True)


main()
