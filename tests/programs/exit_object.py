import sys

sys.exit([1, "a list"])
