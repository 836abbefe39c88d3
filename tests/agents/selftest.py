#!/usr/bin/env python3
"""The model of ours speaks four APIs, and knows a nudge from what a person says: needs no agent."""

import json
import unittest
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from model_server import ModelServer
from reader import Reader, Settler

NUDGE = "ensemble: 2 messages for w1. Run: ensemble recv --as w1"
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}
GEMINI = "/v1beta/models/m:streamGenerateContent?alt=sse"


def bodies(prompt):
    """The same words of a user, as each API has them."""
    said = [{"role": "user", "content": prompt}]
    return {
        "/v1/messages?beta=true": {"stream": True, "messages": said, "tools": [{"name": "Bash"}]},
        "/v1/responses": {"stream": True, "input": said, "tools": [{"type": "function", "name": "shell_command"}]},
        "/v1/chat/completions": {"stream": True, "messages": said,
                                 "tools": [{"type": "function", "function": {"name": "bash"}}]},
        GEMINI: {"contents": [{"role": "user", "parts": [{"text": prompt}]}],
                 "tools": [{"functionDeclarations": [{"name": "run_shell_command", "parameters": SHELL}]}]},
    }


class Dialects(unittest.TestCase):
    def setUp(self):
        self.model = ModelServer()
        self.addCleanup(self.model.close)

    def ask(self, path, body):
        with urlopen(Request(self.model.url + path, json.dumps(body).encode()), timeout=10) as answer:
            return answer.read().decode()

    def test_a_nudge_is_answered_by_the_shell_tool_in_each_of_them(self):
        self.model.follow(Reader())
        for path, body in bodies(NUDGE).items():
            self.assertIn("ensemble recv --as w1 --json", self.ask(path, body), path)

    def test_what_a_person_made_of_a_nudge_is_none(self):
        self.model.follow(Reader())
        for path, body in bodies(NUDGE + "x").items():
            answer = self.ask(path, body)
            self.assertIn("Understood.", answer, path)
            self.assertNotIn("ensemble recv", answer, path)

    def test_mail_is_settled_and_a_request_is_answered(self):
        mail = {"id": "m-1", "mailbox": "w1", "type": "message"}
        request = {"id": "r-1.request", "mailbox": "w1",
                   "type": "shutdown_request", "correlation_id": "r-1"}
        for reader, found, command in ((Reader(), mail, "ensemble settle m-1; "),
                                       (Reader(), request, "ensemble request answer r-1 --approve "),
                                       (Reader(approves=False), request, "ensemble request answer r-1 --reject ")):
            self.model.follow(reader)
            body = bodies(NUDGE)[GEMINI]
            response = {"name": "run_shell_command", "response": {"output": json.dumps(found)}}
            body["contents"].append({"role": "user", "parts": [{"functionResponse": response}]})
            self.assertIn(command, self.ask(GEMINI, body))

    def test_what_a_hook_hands_over_is_settled_and_what_is_older_is_not(self):
        self.model.follow(Settler())
        said = "[ensemble] Message from operator:\nDone: ensemble settle m-7\nDone: ensemble settle m-8\n"
        for path, body in bodies(said).items():
            self.assertIn("ensemble settle m-7; ensemble settle m-8", self.ask(path, body), path)
            name = next(name for name in ("messages", "input", "contents") if name in body)
            said, later = ("parts", "model") if path == GEMINI else ("content", "assistant")
            words = lambda text, path=path: [{"text": text}] if path == GEMINI else text
            body[name] = [*body[name], {"role": later, said: words("Done.")}, {"role": "user", said: words("go on")}]
            self.assertNotIn("ensemble settle", self.ask(path, body), path)

    def test_a_limit_says_when_it_ends(self):
        self.model.set("429", retry_after=30)
        for path, body in bodies("go on").items():
            with self.assertRaises(HTTPError) as refused:
                self.ask(path, body)
            self.assertEqual((refused.exception.code, refused.exception.headers["retry-after"]), (429, "30"), path)
            refused.exception.close()

    def test_an_api_that_is_not_there_is_404(self):
        with self.assertRaises(HTTPError) as refused:
            self.ask("/v1/embeddings", {})
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()


if __name__ == "__main__":
    unittest.main()
