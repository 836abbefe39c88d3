"""Adds the bearer token to every request, for clients that cannot send one: the conformance suite.

Usage: with_token.py HOST:PORT TOKEN    prints the port it listens on; forwards until it is ended
"""

import socket
import sys
import threading

HEAD_BYTES_MAX = 64 * 1024
target_host, target_port = sys.argv[1].rsplit(":", 1)
token = sys.argv[2]


def forward(client):
    """One request a connection: the head is amended, everything else goes through as it is."""
    with client:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(4096)
            if not piece or len(head) > HEAD_BYTES_MAX:
                return
            head += piece
        head, body = head.split(b"\r\n\r\n", 1)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines += [f"Authorization: Bearer {token}".encode(), b"Connection: close"]
        with socket.create_connection((target_host, int(target_port))) as server:
            server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            threading.Thread(target=pump, args=(client, server), daemon=True).start()
            pump(server, client)


def pump(source, sink):
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
    except OSError:
        pass


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=forward, args=(connection,), daemon=True).start()
