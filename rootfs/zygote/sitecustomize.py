"""The Python of a slot: waits, before it runs anything, for the program that it is to become.

creel starts `python3 /work/entry.py` with this file's directory in front of its path, so `site` imports it when the interpreter is ready and before the
program is opened. Here the process imports modules and waits; when it is given a program, this file is left, and the interpreter goes on exactly as
always: the program is its main script, at the bottom of its stack.

Three kinds of process come by here:

* `started`: a Python of its own, in a finished sandbox. It imports, says `ready`, waits, goes on.
* `zygote`: it imports and then forks, again and again, never going on itself.
* a fork of the zygote: it joins the namespaces of a slot and gives up all rights, step by step as the launcher's script says, and then is like a started one.

Descriptor 3 is the socket to the launcher, 4 the directory of this file, 5 a zygote's socket that forks are asked for by. Nothing of what a user
sent has been read before the packet that begins with `run`.
"""


def _wait(gone):
    import sys

    before = set(sys.modules)
    import os
    import _socket

    control, directory, requests = 3, 4, 5
    place = "/proc/self/fd/%d" % directory
    cloexec = 0x40000000  # MSG_CMSG_CLOEXEC

    def endpoint(fd):
        return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fd)

    def receive(sock):
        """One packet and its descriptors; the other end is gone: so are we."""
        data, control_data, _, _ = sock.recvmsg(1 << 17, 4096, cloexec)
        fds = []
        for level, kind, value in control_data:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += memoryview(value[: len(value) // 4 * 4]).cast("i").tolist()
        if not data:
            os._exit(0)
        return data, fds

    def explain(sock, error, what):
        """Says why this process can't go on, and ends it."""
        text = "e%d %s: %s" % (getattr(error, "errno", None) or 0, what, error or type(error).__name__)
        try:
            sock.send(text.encode("utf-8", "replace")[:2000])
        finally:
            os._exit(1)

    # --- what a fresh interpreter has, and an old one must get again -------------------------------------------

    def streams(stdin):
        """A sys.stdin for a pipe: text streams remember whether what they were made on can seek."""
        import io

        old = sys.stdin
        raw = io.open(0, "rb", buffering=-1, closefd=False)
        raw.raw.name = "<stdin>"
        new = io.TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, newline="\n", write_through=True)
        new.mode = "r"
        sys.stdin = sys.__stdin__ = new

    def renew():
        """Random states and names that a fork has in common with its brothers."""
        have = sys.modules.get
        if have("random"):
            have("random").seed()
        if have("numpy.random"):
            have("numpy.random").seed()
        if have("uuid"):
            have("uuid")._node = have("uuid")._last_timestamp = None
        if have("tempfile"):
            have("tempfile")._name_sequence = have("tempfile").tempdir = None
        if have("threading") and hasattr(have("threading").main_thread(), "_set_native_id"):
            have("threading").main_thread()._set_native_id()
        if have("multiprocessing.process"):
            have("multiprocessing.process").current_process().authkey = os.urandom(32)
        if have("_ssl"):
            have("_ssl").RAND_add(os.urandom(32), 32.0)

    def become(sock, data, fds):
        """Takes over what the program is started with. The last thing before it."""
        parcel, streams_given = fds[0], fds[1:]
        size, parts, at = os.fstat(parcel).st_size, [], 0
        blob = b""
        while len(blob) < size:
            blob += os.pread(parcel, size - len(blob), len(blob))

        def part():
            nonlocal at
            n = int.from_bytes(blob[at : at + 8], "little")
            at += 8 + n
            return blob[at - n : at]

        part()  # the program itself lies in /work
        lists = []
        for _ in range(2):
            lists.append([part() for _ in range(int.from_bytes(part(), "little"))])
        args, environment = lists
        os.dup2(streams_given[0], 1)
        os.dup2(streams_given[1], 2)
        if len(streams_given) > 2:
            os.dup2(streams_given[2], 0)
        for fd in fds:
            os.close(fd)
        sock.close()
        if len(streams_given) > 2:
            streams(0)
        os.environ.clear()
        for pair in environment:
            name, _, value = pair.partition(b"=")
            os.environb[name] = value
        time, logging = sys.modules.get("time"), sys.modules.get("logging")
        if time:
            time.tzset()
        if logging:
            logging._startTime = time.time() if isinstance(logging._startTime, float) else time.time_ns()
        argv = [os.fsdecode(a) for a in args]
        sys.argv[1:] = argv
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[2:] = argv

    # --- a quick end ---------------------------------------------------------------------------------------

    def end_quickly(preloaded):
        """Without it, an interpreter that ends takes apart every module, which costs a fork more than most programs run: each page of theirs is copied
        for that. The process ends instead when all that a program can notice of its end has taken place: threads joined, its atexit functions called
        (this one is the first registered and so the last called), its own modules taken apart, its streams flushed. How a program ends is not
        changed; an end that is not understood is left to the interpreter."""
        import ctypes
        import gc
        import weakref

        told = []

        def program():
            """The code of the module that is the program, once it has run."""
            frame = getattr(sys, "last_traceback").tb_frame
            main = getattr(sys.modules.get("__main__"), "__dict__", None)
            return frame.f_code if frame.f_globals is main and not frame.f_back else None

        member = SystemExit.__dict__["code"]
        frame = sys._getframe

        class Code:
            """`SystemExit.code`, which notes what the interpreter itself asks for when a program's last frame is gone."""

            def __get__(self, error, kind=None):
                if error is None:
                    return member
                value = member.__get__(error, kind)
                try:
                    frame(1)
                except ValueError:
                    told[:] = [value]
                return value

            def __set__(self, error, value):
                member.__set__(error, value)

            def __delete__(self, error):
                member.__delete__(error)

        class Proxy(ctypes.Structure):
            _fields_ = [("head", ctypes.c_char * object.__basicsize__), ("mapping", ctypes.py_object)]

        proxy = SystemExit.__dict__
        namespace = Proxy.from_address(id(proxy)).mapping
        if type(namespace) is not dict or namespace.get("code") is not member:
            return None
        if sys.version_info < (3, 12):
            # There, the built-in one leaves a bare status behind until somebody looks: nobody would be told.
            kind = SystemExit

            def exit(status=None, /):
                raise kind(status)

            exit.__doc__, exit.__module__, exit.__qualname__ = sys.exit.__doc__, "sys", "exit"
            sys.exit = exit
        namespace["code"] = Code()
        # A class derived from it may have another idea of `code`, and the interpreter would ask that.
        derived = set(SystemExit.__subclasses__())
        others = []
        namespace["__init_subclass__"] = classmethod(lambda kind, **given: (others.append(1), super(SystemExit, kind).__init_subclass__(**given))[1])
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
        libc = ctypes.PyDLL(None)
        modules, keep = sys.modules, set(preloaded)
        builtin = modules["builtins"].__dict__
        known = set(builtin)
        mine = weakref.ref(modules["__main__"])
        # multiprocessing has it under a second name. Who holds it keeps all that is in it from going when it should.
        names_of_it = [name for name, module in modules.items() if module is mine()]
        held = {name: module for name, module in modules.items() if module is not mine()}
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        exit_now, collect = os._exit, gc.collect

        def last():
            code = told[0] if told else None
            if others or set(SystemExit.__subclasses__()) - derived or modules.get("__main__") is not mine():
                return
            if hasattr(sys, "last_type") and not told:
                # An exception has ended it, or was shown by somebody else. KeyboardInterrupt ends by a signal.
                trace = getattr(sys, "last_traceback", None)
                if trace is None or trace.tb_frame.f_code is not program() or sys.last_type is KeyboardInterrupt:
                    return
                code = 1
            elif code is None:
                code = 0
            elif not isinstance(code, int):
                code = 1
            elif not -(1 << 31) <= code < 1 << 31:
                return
            # As Python/pylifecycle.c, finalize_modules(): the references first, then what cycles kept, last what is left in the modules.
            own = [name for name in names_of_it if name in modules]
            first = len(own)
            for name in reversed(modules):  # the newest first; older ones are not even looked at
                if name in keep:
                    break
                if name not in names_of_it:
                    own.append(name)
            # In the order of their import.
            own[first:] = reversed(own[first:])
            alive = [weakref.ref(modules[n]) for n in own if hasattr(modules[n], "__dict__")]
            for name in own:
                modules[name] = None
            for name in set(builtin) - known:
                del builtin[name]
            collect()
            for ref in reversed(alive):
                module = ref()
                if module is None:
                    continue
                names = module.__dict__
                for early in (True, False):
                    for name in list(names):
                        if isinstance(name, str) and names[name] is not None and name != "__builtins__":
                            if not early or (name[:1] == "_" and name[1:2] != "_"):
                                names[name] = None
            del alive
            collect()
            try:
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None and not stream.closed:
                        stream.flush()
            except BaseException:
                return  # it says so, and ends with 120
            libc.fflush(None)
            exit_now(code & 0xFF)

        # At the end of everything a warning says `sys:1` of its place, where there is no frame any more: so does this one.
        code = last.__code__.replace(co_filename="sys", co_firstlineno=1)
        if sys.version_info >= (3, 11):
            # Objects/locations.md: an entry for eight code units at most, without columns, on the line of the one before.
            units, table = len(code.co_code) // 2, b""
            while units:
                table += bytes([0x80 | 13 << 3 | min(units, 8) - 1, 0])
                units -= min(units, 8)
            code = code.replace(co_linetable=table)
        last.__code__ = code
        return last

    # --- modules --------------------------------------------------------------------------------------------

    def freeze():
        """What was imported is no matter of the collector's any more; the module that becomes the program is, as ever: what it has is in its cycles."""
        import ctypes
        import gc

        gc.collect()
        gc.freeze()
        main = sys.modules["__main__"]
        for thing in (main, main.__dict__):
            ctypes.pythonapi.PyObject_GC_UnTrack(ctypes.py_object(thing))
            ctypes.pythonapi.PyObject_GC_Track(ctypes.py_object(thing))

    def import_all(sock, names):
        os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's allocator starts a thread else
        for name in names:
            try:
                if name == "matplotlib" or name.startswith("matplotlib."):
                    __import__("matplotlib").use("Agg")
                __import__(name)
            except BaseException as error:
                explain(sock, error, "cannot import %s" % name)
        try:
            exercise(names, True)
        except Exception as error:
            explain(sock, error, "exercise the imported modules")

    def exercise(names, all):
        """Once before the fork what most programs do: caches fill, what is loaded lazily is loaded. Once more in a fork it makes the pages that most
        programs write to the fork's own, ahead of time; charts and documents are too large for that."""
        import io

        if "pandas" in names:
            pandas = sys.modules["pandas"]
            table = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
            str(table.a.sum())
            if all:
                repr(table), table.groupby("b").a.sum().to_dict()
        if all and "matplotlib.pyplot" in names:
            pyplot = sys.modules["matplotlib.pyplot"]
            figure, axes = pyplot.subplots()
            axes.plot([1, 2, 3], label="x")
            axes.legend()
            figure.savefig(io.BytesIO(), format="png")
            pyplot.close(figure)
        if all and "openpyxl" in names:
            book = sys.modules["openpyxl"].Workbook()
            book.active.append(["x", 1])
            book.save(io.BytesIO())
        if all and "docx" in names:
            document = sys.modules["docx"].Document()
            document.add_paragraph("x")
            document.save(io.BytesIO())

    def leave(ours):
        """Takes away what only this file needed: the modules `ours`, and its place in the path. It looks at no other module: a fork would get a page of
        its own for each name that it only counts a reference to."""
        while place in sys.path:
            sys.path.remove(place)
        sys.path_importer_cache.pop(place, None)
        for name in ours:
            del sys.modules[name]
        # The image's own, which ours has hidden. While ours is being imported, the import of another by that name must end with one of them there.
        ours = sys.modules.pop("sitecustomize")
        try:
            import sitecustomize
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
            sys.modules["sitecustomize"] = ours
            gone.append(True)

    def serve(sock):
        """Waits for the program."""
        while True:
            data, fds = receive(sock)
            if data[:3] == b"run":
                return data, fds
            if data[:4] == b"heat":
                exercise(names, False)
                sock.send(b"ready")

    # --- the three kinds -------------------------------------------------------------------------------------

    sock = endpoint(control)
    data, _ = receive(sock)
    kind, *names = data.decode("utf-8").split("\n")
    names = [n for n in names if n]
    if names or kind == "zygote":
        import atexit

        last = []
        atexit.register(lambda: last and last[0]())
        import_all(sock, names)
        os.environ.pop("JE_ARROW_MALLOC_CONF", None)
        end = end_quickly(set(sys.modules))
        freeze()
    if kind == "started":
        if names and end:
            last.append(end)
        os.close(directory)
        leave(() if names else set(sys.modules) - before)
        sock.send(b"ready")
        become(sock, *serve(sock))
        return

    # The zygote, from here on.
    import ctypes
    import gc

    gc.disable()
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long

    def tree(top):
        """Directories and small files that importing has made (matplotlib's configuration), to be made again in each slot."""
        found, room = [], 1 << 20
        for folder, folders, files in os.walk(top):
            found += [(os.path.join(folder, f), None) for f in sorted(folders)]
            for name in sorted(files):
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= room:
                    with open(path, "rb") as file:
                        content = file.read()
                    room -= len(content)
                    found.append((path, content))
        return found

    def collapse():
        """Puts what the forks share into huge pages: a fork is copied, and ends, by the page table entry. Best effort; a fork's own changes are small
        pages as ever."""
        huge, collapse = 2 << 20, 25  # MADV_COLLAPSE, Linux 6.1
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        with open("/proc/self/maps") as maps:
            for line in maps.read().splitlines():
                span, rights, _, _, inode, *name = line.split(maxsplit=5)
                if rights == "rw-p" and inode == "0" and (not name or name[0].strip() == "[heap]"):
                    start, end = (int(n, 16) for n in span.split("-"))
                    for at in range((start + huge - 1) // huge * huge, end - huge + 1, huge):
                        libc.madvise(at, huge, collapse)

    left = tree("/tmp")
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        names = []
        for thread in threads:
            with open("/proc/self/task/%s/comm" % thread) as file:
                names.append(file.read().strip())
        explain(sock, None, "the imported modules started threads, so it can't be forked: " + ", ".join(sorted(names)))
    libc.signal(17, 1)  # SIGCHLD is ignored: nobody waits for those that become PID 1
    clone = ctypes.create_string_buffer(88)
    word = ctypes.c_uint64.from_buffer
    word(clone, 0).value = 0x10000000 | 0x20000000  # CLONE_NEWUSER | CLONE_NEWPID
    word(clone, 32).value = 17  # exit_signal
    clone3 = 435

    def carry_out(text, fds):
        """The launcher's script: a system call a line, its arguments numbers (i), bytes (b), descriptors sent along (f), results (r) or bytes with a
        result after them (c), or a filter program (s)."""
        results = []
        for line in text.split("\n"):
            if not line:
                continue
            name, number, *given = line.split("\t")
            arguments, keep = [], []
            for a in given:
                how, value = a[0], a[1:]
                if how == "i":
                    arguments.append(ctypes.c_long(int(value)))
                    continue
                if how == "f":
                    arguments.append(ctypes.c_long(fds[int(value)]))
                    continue
                if how == "r":
                    arguments.append(ctypes.c_long(results[int(value)]))
                    continue
                if how == "c":
                    value, _, result = value.partition(":")
                    content = bytes.fromhex(value) + results[int(result)].to_bytes(4, "little")
                else:
                    content = bytes.fromhex(value)
                buffer = ctypes.create_string_buffer(content, max(len(content), 1))
                keep.append(buffer)
                if how == "s":
                    program = ctypes.create_string_buffer(16)
                    ctypes.c_uint16.from_buffer(program, 0).value = len(content) // 8
                    word(program, 8).value = ctypes.addressof(buffer)
                    keep.append(program)
                    buffer = program
                arguments.append(buffer)
            result = libc.syscall(ctypes.c_long(int(number)), *arguments)
            if result < 0:
                raise OSError(ctypes.get_errno(), name)
            results.append(result)

    def payload(sock):
        """The fork that becomes the program."""
        try:
            sock.send(b"born")
            data, fds = receive(sock)
            libc.signal(17, 0)
            os.dup2(sock.fileno(), control)
            # From here on number 3 is the socket, and the script closes all others but the streams.
            sock.detach()
            sock = endpoint(control)
            carry_out(data.decode(), fds)
            for path, content in left:
                if content is None:
                    os.makedirs(path, exist_ok=True)
                else:
                    with open(path, "wb") as file:
                        file.write(content)
        except BaseException as error:
            explain(sock, error, "prepare the fork")
        if end:
            last.append(end)
        gc.enable()
        renew()
        sock.send(b"ready")
        become(sock, *serve(sock))

    def pid_1(mine, child, program, entrances):
        """The fork that is PID 1 of the slot: forks the other one and becomes creel's own init."""
        try:
            mine.send(b"born")
            for fd in entrances:
                os.write(fd, b"0")
            if os.fork() == 0:
                for fd in [program, *entrances]:
                    os.close(fd)
                mine.close()
                return child
            child.close()
            data, fds = receive(mine)
            carry_out(data.decode(), fds)
            os.dup2(mine.fileno(), control, inheritable=True)
            os.execve(program, [b"init"], {})
        except BaseException as error:
            explain(mine, error, "become init")

    leave(())
    freeze()
    collapse()
    sock.send(b"ready")
    asked = endpoint(requests)
    while True:
        data, fds = receive(asked)
        pid = libc.syscall(ctypes.c_long(clone3), clone, ctypes.c_long(88))
        if pid == 0:
            sock.detach()
            asked.detach()
            mine, child = endpoint(fds[0]), endpoint(fds[1])
            return payload(pid_1(mine, child, fds[2], fds[3:]))
        error = ctypes.get_errno()
        if pid < 0:
            endpoint(os.dup(fds[0])).send(("e%d fork the zygote" % error).encode())
        for fd in fds:
            os.close(fd)


_gone = []
_wait(_gone)
if _gone:
    # What `site` hears when there is no such module; the import system takes this one out again.
    raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
