"""The streams of server-sent events of four APIs, and the names that agents give to their shell tools."""

import itertools
import json

# Agents join messages of the same id.
NUMBERS = itertools.count(1)
USAGE = {"input_tokens": 10, "output_tokens": 5}
# The names of the agents' shell tools, and their arguments.
SHELLS = {
    "Bash": lambda command: {"command": command, "description": "as told"},
    "bash": lambda command: {"command": command, "description": "as told"},
    # A request to leave its sandbox makes the agent ask its human.
    "exec_command": lambda command: {"cmd": command, "sandbox_permissions": "require_escalated",
                                     "justification": "as told"},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
    "run_shell_command": lambda command: {"command": command, "description": "as told"},
}
# With these Codex asks its human to run a command outside of its sandbox.
ESCALATION = {"sandbox_permissions", "justification"}
REFUSALS = {
    401: ("authentication_error", "UNAUTHENTICATED", "invalid x-api-key"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED", "too many requests"),
}


def stream_of(path):
    """The stream that answers a POST to `path`; `None` if no API has that."""
    last = path.rsplit("/", 1)[-1]
    streams = {"messages": anthropic, "responses": responses, "completions": chat}
    return gemini if last.endswith("enerateContent") else streams.get(last)


def refusal(path, status):
    """The body of an error, as the API at `path` words it."""
    kind, name, text = REFUSALS[status]
    if "enerateContent" in path:
        return {"error": {"code": status, "message": text, "status": name}}
    return {"type": "error", "error": {"type": kind, "message": text}}


def whole(path, answer):
    """An answer to a request without a stream."""
    text = answer if isinstance(answer, str) else "Understood."
    if "enerateContent" in path:
        return candidate([{"text": text}], "STOP")
    return {"id": f"msg_{next(NUMBERS)}", "type": "message", "role": "assistant", "model": "model",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": USAGE}


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
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    last = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "model": "model", "choices": [],
            "usage": usage}
    yield f"data: {json.dumps(last)}\n\n"
    yield "data: [DONE]\n\n"


def candidate(parts, reason=None):
    found = {"index": 0, "content": {"role": "model", "parts": parts}}
    if reason:
        found["finishReason"] = reason
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [found], "usageMetadata": usage, "modelVersion": "model"}


def gemini(answer):
    if isinstance(answer, str):
        parts = [{"text": answer}]
    else:
        parts = [{"functionCall": {"id": f"call_{next(NUMBERS)}", "name": answer[0], "args": answer[1]}}]
    yield f"data: {json.dumps(candidate(parts))}\r\n\r\n"
    yield f"data: {json.dumps(candidate([{'text': ''}], 'STOP'))}\r\n\r\n"
