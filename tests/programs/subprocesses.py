import os
import subprocess
import sys

run = lambda *a, **k: subprocess.run(*a, capture_output=True, text=True, **k)
print(run(["sh", "-c", "echo $0 $1; exit 4", "a", "b c"]))
a = subprocess.Popen(["seq", "100000"], stdout=subprocess.PIPE)
b = subprocess.Popen(["grep", "77"], stdin=a.stdout, stdout=subprocess.PIPE)
c = subprocess.Popen(["wc", "-l"], stdin=b.stdout, stdout=subprocess.PIPE, text=True)
a.stdout.close()
b.stdout.close()
print(c.communicate()[0].strip(), b.wait(), a.wait())
print(run("seq 10 | sort -r | head -3 | tr '\\n' ' '; echo ${PIPESTATUS[@]}", shell=True, executable="/bin/bash").stdout)
try:
    run(["sleep", "100"], timeout=0.1)
except subprocess.TimeoutExpired as e:
    print(e)
try:
    run(["/no/such/program"])
except FileNotFoundError as e:
    print(e)
print(run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]).returncode)
print(run(["cat"], input="given").stdout, run(["env", "-i", "A=1", "env"]).stdout, run(["pwd"], cwd="/tmp").stdout)
print(run(["sh", "-c", "kill -TERM $$"], start_new_session=True).returncode)
print(run(["sh", "-c", "umask; ulimit -n"], preexec_fn=lambda: os.umask(0o77)).stdout)
subprocess.check_call(["sh", "-c", "echo straight through; echo err >&2; exit 2"])
