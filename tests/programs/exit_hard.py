import os

print("lost without a flush?", flush=True)
os._exit(9)
