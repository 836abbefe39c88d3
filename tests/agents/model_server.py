"""A model of ours on loopback: as much of four APIs as the real agents need.

`POST /v1/messages` (Anthropic), `/v1/responses` and `/v1/chat/completions` (OpenAI) and
`/v1beta/models/…:streamGenerateContent` (Gemini), each as a stream of server-sent events. What is
answered is set in `ModelServer.mode`:

    text     a line of plain text
    slow     begins to answer, and goes on when `release` is set
    tool     calls the agent's shell tool once, with `command`
    loop     calls it again and again
    script   whatever `script.answer` says to the request
    401/429  refuses; with `retry_after`, says when to try again

An `AGENT_TEAM_PING` is answered in every mode but the refusing ones: with `pong = "screen"` by a line
of text, with `pong = "shell"` by calling `ensemble agent pong`, with `pong = None` by nothing of use.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dialects import ESCALATION, SHELLS, refusal, stream_of, whole

PING = re.compile(r"AGENT_TEAM_PING (\S+) (\d+)")
# Copilot puts what a person types between such blocks.
BLOCK = re.compile(r"<([\w-]+)>.*?</\1>", re.DOTALL)
SLOW_SECONDS_MAX = 120
REFUSING = {"401": 401, "429": 429}


class Asked:
    """A request: what the user said last, whether tools were offered, whether a tool has answered."""

    def __init__(self, path, body):
        self.path, self.at, self.body = path, time.monotonic(), body
        self.stream = body.get("stream", "streamGenerateContent" in path)
        tools = body.get("tools") or []
        tools = [tool for some in tools for tool in some.get("functionDeclarations") or [some]]
        self.tools = [tool_name(tool) for tool in tools]
        self.served = list(served(tools))
        items = body.get("messages") or body.get("input") or body.get("contents") or []
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        # Claude adds what its settings say behind the tool's answer, as a message of its own.
        while items and items[-1].get("role") in ("system", "developer"):
            items = items[:-1]
        self.after_tool = bool(items) and answers_tool(items[-1])
        self.result = result(items[-1]) if self.after_tool else ""
        users = [item for item in items if item.get("role") == "user" and texts(item)]
        self.prompt = "\n".join(texts(users[-1])) if users else ""
        self.prompts = [text for item in users for text in texts(item)]

    @property
    def is_aside(self):
        """Agents also ask for titles and the like; they offer no shell for that."""
        return not any(name in SHELLS for name in self.tools)

    def call(self, short, arguments):
        """A call of the MCP tool that the agent offers under a name that ends so."""
        for namespace, name in self.served:
            if name == short or name.endswith("_" + short):
                return name, arguments, namespace
        return f"There is no tool {short}."

    def shell(self, command, inside=False):
        """A call of the agent's shell tool; `inside` of its sandbox, if it has one."""
        name = next(name for name in self.tools if name in SHELLS)
        arguments = SHELLS[name](command)
        if inside:
            arguments = {key: value for key, value in arguments.items() if key not in ESCALATION}
        return name, arguments


def served(tools):
    """All tools with the namespace that some stand in."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from ((tool["name"], name) for _, name in served(tool.get("tools") or []))
        else:
            yield None, tool_name(tool)


def tool_name(tool):
    return tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type", "")


def parts_of(item):
    content = item.get("content") if item.get("content") is not None else item.get("parts")
    return [{"text": content}] if isinstance(content, str) else content or []


def texts(item):
    """The user's own words in a message; agents add blocks of theirs, in tags."""
    found = [BLOCK.sub("", part.get("text") or "") for part in parts_of(item) if not part.get("thought")]
    return [text.strip() for text in found if text and not text.lstrip().startswith(("<", "[Request int"))]


def answers_tool(item):
    if item.get("role") == "tool" or item.get("type") == "function_call_output":
        return True
    answers = [part.get("type") == "tool_result" or "functionResponse" in part for part in parts_of(item)]
    return any(answers) and not texts(item)


def result(item):
    """What a tool has answered, as text."""
    content = item.get("output") if item.get("output") is not None else item.get("content") or parts_of(item)
    return content if isinstance(content, str) else json.dumps(content)


class ModelServer:
    def __init__(self):
        self.mode, self.pong, self.command = "text", "screen", "true"
        self.script, self.retry_after = None, None
        self.answer_seconds = 0.0
        self.release = threading.Event()
        self.asked, self.lock = [], threading.Lock()
        handler = type("Bound", (Handler,), {"model": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def set(self, mode, command="true", pong="screen", retry_after=None, answer_seconds=0.0):
        """From now on answers so, each time after some seconds. Returns how many requests there were."""
        self.release.set()
        self.release = threading.Event()
        self.mode, self.command, self.pong, self.retry_after = mode, command, pong, retry_after
        self.answer_seconds = answer_seconds
        with self.lock:
            return len(self.asked)

    def follow(self, script, answer_seconds=0.0):
        """From now on answers what the script says."""
        self.script = script
        return self.set("script", answer_seconds=answer_seconds)

    def since(self, count):
        """The requests of conversations after the first `count` of all."""
        with self.lock:
            return [asked for asked in self.asked[count:] if not asked.is_aside]

    def close(self):
        self.release.set()
        self.http.shutdown()
        self.http.server_close()

    def answer(self, asked):
        """A text, or the name and the arguments of a tool call."""
        if asked.is_aside:
            return "A title"
        ping = PING.search(asked.prompt)
        if ping and asked.after_tool:
            return "Answered."
        if ping and self.pong == "shell":
            return asked.shell(f"ensemble agent pong {ping[1]} {ping[2]}", inside=True)
        if ping and self.pong == "screen":
            return f"AGENT_TEAM_PONG {ping[1]} {ping[2]}"
        if self.mode == "script":
            return self.script.answer(asked)
        if self.mode == "loop" or self.mode == "tool" and not asked.after_tool:
            return asked.shell(self.command)
        return "Understood."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.reply(200, {"object": "list", "data": [{"id": "model", "object": "model"}], "models": []})

    do_HEAD = do_GET

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw or b"{}")
        path = self.path.split("?")[0]
        if path.endswith(("/count_tokens", ":countTokens")):
            return self.reply(200, {"input_tokens": 10, "totalTokens": 10})
        stream = stream_of(path)
        if stream is None:
            return self.reply(404, {"error": {"type": "not_found_error", "message": path}})
        asked = Asked(path, body)
        with self.model.lock:
            self.model.asked.append(asked)
        mode, release = self.model.mode, self.model.release
        if mode in REFUSING:
            return self.reply(REFUSING[mode], refusal(path, REFUSING[mode]), self.model.retry_after)
        if not asked.is_aside:
            time.sleep(self.model.answer_seconds)
        answer = self.model.answer(asked)
        if not asked.stream:
            return self.reply(200, whole(path, answer))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        slow = mode == "slow" and not asked.is_aside
        try:
            for event in stream(answer):
                # The first event is the beginning of an answer; the rest has time.
                self.wfile.write(event.encode())
                self.wfile.flush()
                if slow:
                    release.wait(SLOW_SECONDS_MAX)
        except OSError:
            pass  # The agent has hung up.

    def reply(self, status, value, retry_after=None):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
