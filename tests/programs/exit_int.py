import sys

print("leaving", file=sys.stderr)
sys.exit(3)
