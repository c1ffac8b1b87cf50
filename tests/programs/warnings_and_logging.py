import logging
import sys
import warnings


def old():
    warnings.warn("old thing", DeprecationWarning, stacklevel=2)


old()
warnings.warn("look out 汉")
logging.warning("by default to stderr")
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(filename)s:%(lineno)d %(message)s", force=True)
logging.info("informed")
try:
    {}["missing"]
except KeyError:
    logging.exception("with a traceback")
print("stdout", file=sys.stdout)
print("stderr", file=sys.stderr)
assert 1 == 2, "assertions are on"
