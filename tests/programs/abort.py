import os, sys
print("before", flush=True)
os.abort()
