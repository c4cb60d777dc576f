import sys
import urllib.request

url = sys.argv[1]
try:
    print(urllib.request.urlopen(url).readline().decode(), end="")
except OSError as err:
    sys.exit(f"cannot reach {url}: {err.reason}")
