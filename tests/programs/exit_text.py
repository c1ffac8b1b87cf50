import sys

sys.exit("a message 汉")
