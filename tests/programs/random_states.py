import hashlib
import os
import random
import secrets
import ssl
import string
import tempfile
import time
import uuid
import zoneinfo

random.seed(7)
print(random.random(), random.randrange(1 << 60), random.gauss(0, 1), random.sample(range(100), 5))
print(random.Random(3).random(), hash("a") == hash("a"), hash(1.5), hash((1, 2)))
print(uuid.uuid3(uuid.NAMESPACE_DNS, "x"), uuid.uuid5(uuid.NAMESPACE_DNS, "键"), uuid.uuid4().version, uuid.uuid1().version)
print(uuid.uuid1().time < uuid.uuid1().time, uuid.uuid1().node == uuid.getnode())
print(len(secrets.token_bytes(9)), secrets.compare_digest("a", "a"), len(ssl.RAND_bytes(5)), ssl.RAND_status(), ssl.OPENSSL_VERSION)
print(hashlib.sha256(b"x").hexdigest(), hashlib.scrypt(b"p", salt=b"s", n=2, r=1, p=1).hex()[:16])
print(tempfile.gettempdir(), tempfile.tempdir, len(os.path.basename(tempfile.mkdtemp())), tempfile.mktemp() != tempfile.mktemp())
print(ssl.create_default_context().verify_mode, ssl.get_default_verify_paths().openssl_cafile)
print(time.tzname, time.timezone, time.daylight, time.perf_counter() >= 0, time.process_time() < 20, zoneinfo.TZPATH)
before = random.getstate()
pid = os.fork()
if pid == 0:
    os._exit(random.getstate() != before)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), random.getstate() == before)
SystemRandom = random.SystemRandom()
print(all(c in string.ascii_letters for c in (SystemRandom.choice(string.ascii_letters) for _ in range(9))))
