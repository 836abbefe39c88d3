"""A model of ours on loopback: as much of three APIs as the real agents need.

`POST /v1/messages` (Anthropic), `/v1/responses` and `/v1/chat/completions` (OpenAI), each as a stream
of server-sent events. What is answered is set in `ModelServer.mode`:

    text     a line of plain text
    slow     begins to answer, and goes on when `release` is set
    tool     calls the agent's shell tool once, with `command`
    script   whatever `script.answer` says to the request
    401/429  refuses

An `AGENT_TEAM_PING` is answered in every mode but the refusing ones: with `pong = "screen"` by a line
of text, with `pong = "shell"` by calling `ensemble pong`, with `pong = None` by nothing of use.
"""

import itertools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PING = re.compile(r"AGENT_TEAM_PING (\S+) (\d+)")
SLOW_SECONDS_MAX = 120
# Agents join messages of the same id.
NUMBERS = itertools.count(1)
USAGE = {"input_tokens": 10, "output_tokens": 5}
REFUSALS = {
    "401": (401, "authentication_error", "invalid x-api-key"),
    "429": (429, "rate_limit_error", "too many requests"),
}
# The names of the agents' shell tools, and their arguments.
SHELLS = {
    "Bash": lambda command: {"command": command, "description": "as told"},
    "bash": lambda command: {"command": command, "description": "as told"},
    # Asking to leave its sandbox is what makes it ask its human.
    "exec_command": lambda command: {"cmd": command, "sandbox_permissions": "require_escalated",
                                     "justification": "as told"},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
}
# With these Codex asks its human to run a command outside of its sandbox.
ESCALATION = {"sandbox_permissions", "justification"}


class Asked:
    """A request: what the user said last, whether tools were offered, whether a tool has answered."""

    def __init__(self, path, body):
        self.path = path
        self.stream = body.get("stream", False)
        tools = body.get("tools") or []
        self.tools = [tool_name(tool) for tool in tools]
        self.served = list(served(tools))
        items = body.get("messages") or body.get("input") or []
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
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


def served(tools):
    """All tools with the namespace that some stand in."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from ((tool["name"], name) for _, name in served(tool.get("tools") or []))
        else:
            yield None, tool_name(tool)


def tool_name(tool):
    return tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type", "")


def texts(item):
    """The user's own words in a message; agents add blocks of theirs, in tags."""
    content = item.get("content")
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content or []]
    return [part.strip() for part in parts if part and not part.lstrip().startswith(("<", "[Request int"))]


def answers_tool(item):
    if item.get("role") == "tool" or item.get("type") == "function_call_output":
        return True
    content = item.get("content")
    if not isinstance(content, list):
        return False
    kinds = [part.get("type") for part in content]
    return "tool_result" in kinds and not texts(item)


def result(item):
    """What a tool has answered, as text."""
    content = item.get("output") if item.get("output") is not None else item.get("content")
    return content if isinstance(content, str) else json.dumps(content)


class ModelServer:
    def __init__(self):
        self.mode, self.pong, self.command = "text", "screen", "true"
        self.script = None
        self.release = threading.Event()
        self.asked, self.lock = [], threading.Lock()
        handler = type("Bound", (Handler,), {"model": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def set(self, mode, command="true", pong="screen"):
        """From now on answers so. Returns how many requests there were."""
        self.release.set()
        self.release = threading.Event()
        self.mode, self.command, self.pong = mode, command, pong
        with self.lock:
            return len(self.asked)

    def follow(self, script):
        """From now on answers what the script says."""
        self.script = script
        return self.set("script")

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
            return self.shell(asked, f"ensemble pong {ping[1]} {ping[2]}", inside=True)
        if ping and self.pong == "screen":
            return f"AGENT_TEAM_PONG {ping[1]} {ping[2]}"
        if self.mode == "script":
            return self.script.answer(asked)
        if self.mode == "tool" and not asked.after_tool:
            return self.shell(asked, self.command)
        return "Understood."

    @staticmethod
    def shell(asked, command, inside=False):
        """A call of the agent's shell tool; `inside` of its sandbox, if it has one."""
        name = next(name for name in asked.tools if name in SHELLS)
        arguments = SHELLS[name](command)
        if inside:
            arguments = {key: value for key, value in arguments.items() if key not in ESCALATION}
        return name, arguments


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
        if path.endswith("/count_tokens"):
            return self.reply(200, {"input_tokens": 10})
        streams = {"messages": anthropic, "responses": responses, "completions": chat}
        stream = streams.get(path.rsplit("/", 1)[-1])
        if stream is None:
            return self.reply(404, {"error": {"type": "not_found_error", "message": path}})
        asked = Asked(path, body)
        with self.model.lock:
            self.model.asked.append(asked)
        mode, release = self.model.mode, self.model.release
        if mode in REFUSALS:
            status, kind, text = REFUSALS[mode]
            return self.reply(status, {"type": "error", "error": {"type": kind, "message": text}})
        answer = self.model.answer(asked)
        if not asked.stream:
            return self.reply(200, whole(answer))
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

    def reply(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def whole(text):
    """What Anthropic's API answers to a request without a stream."""
    number = next(NUMBERS)
    content = [{"type": "text", "text": text if isinstance(text, str) else "Understood."}]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "model",
            "content": content, "stop_reason": "end_turn", "usage": USAGE}


def event(data):
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def anthropic(answer):
    number = next(NUMBERS)
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "model", "content": [],
               "stop_reason": None, "usage": USAGE}
    if isinstance(answer, str):
        block, reason = {"type": "text", "text": ""}, "end_turn"
        delta = {"type": "text_delta", "text": answer}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer[0], "input": {}}
        reason, delta = "tool_use", {"type": "input_json_delta", "partial_json": json.dumps(answer[1])}
    yield event({"type": "message_start", "message": message})
    yield event({"type": "content_block_start", "index": 0, "content_block": block})
    yield event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield event({"type": "content_block_stop", "index": 0})
    yield event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": USAGE})
    yield event({"type": "message_stop"})


def responses(answer):
    number = next(NUMBERS)
    if isinstance(answer, str):
        item = {"type": "message", "id": f"item_{number}", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": answer, "annotations": []}]}
    else:
        item = {"type": "function_call", "id": f"item_{number}", "call_id": f"call_{number}",
                "name": answer[0], "arguments": json.dumps(answer[1]), "status": "completed"}
        if answer[2:] and answer[2]:
            item["namespace"] = answer[2]
    usage = {**USAGE, "total_tokens": 15}
    yield event({"type": "response.created", "response": {"id": f"resp_{number}", "status": "in_progress"}})
    yield event({"type": "response.output_item.added", "output_index": 0, "item": item})
    yield event({"type": "response.output_item.done", "output_index": 0, "item": item})
    done = {"id": f"resp_{number}", "status": "completed", "output": [item], "usage": usage}
    yield event({"type": "response.completed", "response": done})


def chat(answer):
    number = next(NUMBERS)

    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        data = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "model": "model",
                "choices": [choice]}
        return f"data: {json.dumps(data)}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    if isinstance(answer, str):
        yield chunk({"content": answer})
        yield chunk({}, "stop")
    else:
        function = {"name": answer[0], "arguments": json.dumps(answer[1])}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        yield chunk({}, "tool_calls")
    yield "data: [DONE]\n\n"
