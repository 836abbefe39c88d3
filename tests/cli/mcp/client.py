"""Lists and calls every tool with the official Python client; run by tests/cli/mcp.rs.

Usage: client.py HOW PROGRAM PROJECT           over stdin and stdout, as Tara
       client.py HOW --http URL TOKEN         over HTTP

HOW is `discover`, as in the specification of 2026-07-28, or `initialize`, as in those before it.

Prints one line of JSON for each tool: {"tool", "is_error", "text"}; and first the tools themselves.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

CALLS = [
    ("whoami", {}),
    ("list_agents", {}),
    ("send", {"to": "Devon", "message": "hello", "task_id": "0-4-1"}),
    ("assign", {"worker": "Nemo", "instruction": "count"}),
    ("inbox", {"limit": 5}),
    ("recv", {}),
    ("heartbeat", {}),
    ("submit_step_completion", {
        "task_id": "0-4-1", "step_index": 1.0, "agent": "Tara", "status": "success",
        "artifacts": ["tests/login.rs"], "summary": "one test, and it fails",
        "context_for_next_step": "the test is login_fails"}),
    ("submit_step_completion", {
        "task_id": "0-4-1", "step_index": 1.5, "agent": "Tara", "status": "done"}),
    ("submit_step_completion", {
        "task_id": "0-4-1", "step_index": 1, "agent": "Tara", "status": "failure",
        "artefacts": ["tests/login.rs"], "bogus": 1}),
    ("submit_step_completion", {
        "task_id": "0-4-1", "step_index": 2, "agent": "Devon", "status": "success"}),
    ("recv", {}),
    ("reply", {"id": "nothing", "message": "hello"}),
    ("recall", {"id": "nothing"}),
    ("settle", {"id": "letter-1"}),
    ("plan_approval", {"plan": "1. read 2. write", "task_id": "task-8"}),
    ("plan_approval", {"request_id": "nothing", "approve": True}),
    ("shutdown_request", {"agent": "Devon", "deadline_seconds": 600, "on_silence": "tell"}),
    ("shutdown_response", {"request_id": "nothing", "approve": False, "reason": "busy"}),
    ("report", {
        "task_id": "task-9", "status": "success", "files_modified": ["plan.yaml"],
        "summary": "12 of 12 tests pass (100%), the steps are in plan.yaml:2-6"}),
    ("report", {"task_id": "task-9", "status": "failed", "summary": "some tests fail"}),
    ("claim_task", {}),
    ("claim_task", {"task_id": "task-1"}),
    ("heartbeat", {}),
    ("submit_task", {}),
    ("handoff", {"summary": "half of the parser", "next_action": " "}),
    ("handoff", {"summary": "half of the parser", "next_action": "the other half",
                 "files_modified": ["src/parser.rs"], "context_used": 90}),
    ("verdict_task", {"approve": False}),
    ("block_task", {"task_id": "task-1", "reason": "the API is gone", "questions": ["Which API?"]}),
    ("pong", {"attempt": 1}),
    ("next_step", {}),
    ("release", {"id": "letter-1"}),
    ("dead_letter", {"id": "nothing", "reason": "no agent can read it"}),
    ("recv_wait", {"timeout_seconds": 0}),
]


def say(value):
    print(json.dumps(value), flush=True)


async def play(session):
    await (session.discover() if HOW == "discover" else session.initialize())
    tools = (await session.list_tools()).tools
    say({"protocol": session.protocol_version,
         "tools": {tool.name: schema(tool) for tool in tools}})
    for name, arguments in CALLS:
        result = await session.call_tool(name, arguments)
        say({"tool": name, "is_error": bool(value(result, "is_error", "isError")),
             "text": result.content[0].text})
    resources = (await session.list_resources()).resources
    uris = [str(resource.uri) for resource in resources]
    contents = {uri: (await session.read_resource(uri)).contents[0].text for uri in uris}
    say({"resources": contents})


def value(thing, *names):
    """Members are named in two ways by the versions of the client."""
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


def schema(tool):
    return value(tool, "input_schema", "inputSchema")


async def over_stdio(program, project):
    arguments = ["--queue", f"{project}/queue", "--as", "Tara", "mcp"]
    server = StdioServerParameters(command=program, args=arguments)
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await play(session)


async def over_http(url, token):
    from httpx2 import AsyncClient
    from mcp.client.streamable_http import streamable_http_client

    # Five seconds, its own limit, are not enough for a machine that stands still now and then.
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncClient(headers=headers, timeout=120) as client:
        async with streamable_http_client(url, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await play(session)


HOW, *REST = sys.argv[1:]
if REST[0] == "--http":
    asyncio.run(over_http(REST[1], REST[2]))
else:
    asyncio.run(over_stdio(REST[0], REST[1]))
