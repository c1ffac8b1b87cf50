import decimal
import fractions
import hashlib
import json
import math
import random
import statistics
import struct

random.seed(42)
print([random.randint(0, 10**9) for _ in range(5)], random.gauss(0, 1))
decimal.getcontext().prec = 50
print(decimal.Decimal(2).sqrt(), fractions.Fraction(355, 113) ** 3)
print(json.dumps({"a": [1.1, None, True, "汉", 1e300]}, ensure_ascii=False, indent=1))
print(math.fsum([0.1] * 10), math.factorial(30), statistics.stdev([1, 2, 3, 4]), struct.pack("<dI", 1.5, 7))
print({n: hashlib.new(n, b"x").hexdigest()[:16] for n in ("md5", "sha1", "sha256", "sha3_256", "blake2b")})
print(hashlib.scrypt(b"p", salt=b"s", n=1024, r=8, p=1).hex()[:16], 2**1000 % 10**9, 0.1 + 0.2, round(2.5))
print(math.sin(1e10), math.exp(1), complex(1, 2) ** 0.5, float("inf") - 1, hash(1.5), hash((1, 2)))
print(10**5000)
