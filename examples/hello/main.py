import socket
import sys

from greeting import greeting

print(greeting(sys.argv[1]))

try:
    socket.create_connection(("127.0.0.1", 22), timeout=1)
    print("I can reach this machine!")
except OSError:
    print("I can see no network.")
