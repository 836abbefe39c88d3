"""How each agent is told of our model, and where it keeps what it has been told."""

import json
import subprocess

KEY = "sk-ant-dummy-0123456789-0123456789"
PACKAGES = {"claude": "@anthropic-ai/claude-code@latest", "codex": "@openai/codex@latest",
            "opencode": "opencode-ai@latest", "gemini": "@google/gemini-cli@latest",
            # These need Node 22, which npm has as `node@22`.
            "copilot": "@github/copilot@latest", "kimi": "@moonshot-ai/kimi-code@latest",
            "qwen": "@qwen-code/qwen-code@latest"}
# Those that are walked unless others are named.
USUAL = ["claude", "codex", "opencode", "gemini"]
# A person's own permission, for agents that are started without our files.
GEMINI_POLICY = """[[rule]]
toolName = "run_shell_command"
commandPrefix = "ensemble"
decision = "allow"
priority = 500
"""


def claude(agent, trusted=True, key=True):
    known = {"hasCompletedOnboarding": True, "theme": "dark"}
    if key:
        known["customApiKeyResponses"] = {"approved": [KEY[-20:]], "rejected": []}
    if trusted:
        known["projects"] = {str(agent.project): {"hasTrustDialogAccepted": True}}
    (agent.home / ".claude.json").write_text(json.dumps(known))
    (agent.home / ".claude").mkdir()
    allowed = [] if agent.hooked else ["Bash(ensemble:*)", "mcp__ensemble"]
    settings = {"permissions": {"defaultMode": "default", "allow": allowed},
                "enabledMcpjsonServers": ["ensemble"]}
    (agent.home / ".claude/settings.json").write_text(json.dumps(settings))
    environment = {"ANTHROPIC_BASE_URL": agent.scratch.url, "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "1",
                   # Otherwise it does not say which tools there are before it searches for one.
                   "ENABLE_TOOL_SEARCH": "false"}
    return {**environment, "ANTHROPIC_API_KEY": KEY} if key else environment


def codex(agent, trusted=True, key=True):
    lines = ['model = "model"', 'model_provider = "ours"',
             "check_for_update_on_startup = false"]
    if not key:
        lines = lines[2:]
    lines += ["[model_providers.ours]", 'name = "ours"', f'base_url = "{agent.scratch.url}/v1"',
              'wire_api = "responses"', "requires_openai_auth = false", "request_max_retries = 1",
              "stream_max_retries = 0"]
    if trusted:
        lines += [f'[projects."{agent.project}"]', 'trust_level = "trusted"']
    subprocess.run(["git", "init", "--quiet", agent.project], check=True)
    # Its shell is a login shell, and /etc/profile sets another PATH.
    (agent.home / ".profile").write_text(f'PATH="{agent.scratch.path}"\n')
    (agent.home / ".codex").mkdir()
    (agent.home / ".codex/config.toml").write_text("\n".join(lines) + "\n")
    return {}


def opencode(agent, trusted=True, key=True):
    permitted = {} if agent.hooked else {"ensemble *": "allow"}
    config = {"autoupdate": False, "share": "disabled", "permission": {"bash": {"*": "ask", **permitted}}}
    if key:
        options = {"baseURL": f"{agent.scratch.url}/v1", "apiKey": KEY}
        config["model"] = "ours/model"
        config["provider"] = {"ours": {"npm": "@ai-sdk/openai-compatible", "name": "ours",
                                       "options": options, "models": {"model": {"name": "model"}}}}
    place = agent.home / ".config/opencode"
    place.mkdir(parents=True)
    (place / "opencode.json").write_text(json.dumps(config))
    # It gets a package for the authors of plugins, and without a network it tries for more than a minute.
    (place / "node_modules").mkdir()
    has = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (place / "package-lock.json").write_text(json.dumps(has))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1"}


def gemini(agent, trusted=True, key=True):
    settings = {"general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
                "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
                "model": {"name": "gemini-2.5-pro"}}
    if key:
        settings["security"] = {"auth": {"selectedType": "gemini-api-key"}}
    place = agent.home / ".gemini"
    (place / "policies").mkdir(parents=True)
    if not agent.hooked:
        (place / "policies/ensemble.toml").write_text(GEMINI_POLICY)
    (place / "settings.json").write_text(json.dumps(settings))
    if trusted:
        (place / "trustedFolders.json").write_text(json.dumps({str(agent.project): "TRUST_FOLDER"}))
    environment = {"GOOGLE_GEMINI_BASE_URL": agent.scratch.url}
    return {**environment, "GEMINI_API_KEY": KEY} if key else environment


def qwen(agent, trusted=True, key=True):
    allowed = [] if agent.hooked else ["Bash(ensemble *)"]
    settings = {"general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False},
                "tools": {"approvalMode": "default"}, "permissions": {"allow": allowed},
                "memory": {"enableManagedAutoMemory": False}, "ui": {"enableFollowupSuggestions": False}}
    if key:
        settings["security"] = {"auth": {"selectedType": "openai"}}
    (agent.home / ".qwen").mkdir()
    (agent.home / ".qwen/settings.json").write_text(json.dumps(settings))
    environment = {"OPENAI_BASE_URL": f"{agent.scratch.url}/v1", "OPENAI_MODEL": "model"}
    return {**environment, "OPENAI_API_KEY": KEY} if key else environment


def copilot(agent, trusted=True, key=True):
    (agent.home / ".copilot").mkdir()
    known = {"trusted_folders": [str(agent.project)]} if trusted else {}
    (agent.home / ".copilot/config.json").write_text(json.dumps(known))
    # It has no file for a person's own permission.
    return {"COPILOT_ALLOW_ALL": "1", "COPILOT_PROVIDER_BASE_URL": f"{agent.scratch.url}/v1", "COPILOT_MODEL": "model",
            "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}


def kimi(agent, trusted=True, key=True):
    lines = ['default_model = "model"', "[providers.ours]", 'type = "openai"', f'base_url = "{agent.scratch.url}/v1"',
             f'api_key = "{KEY}"', "[models.model]", 'provider = "ours"', 'model = "model"', "max_context_size = 100000"]
    if not agent.hooked:
        # It does not heed a rule for our commands alone.
        lines.insert(0, 'default_permission_mode = "yolo"')
    (agent.home / ".kimi-code").mkdir()
    (agent.home / ".kimi-code/config.toml").write_text("\n".join(lines) + "\n")
    return {}


CONFIGURE = {"claude": claude, "codex": codex, "opencode": opencode, "gemini": gemini, "copilot": copilot,
             "kimi": kimi, "qwen": qwen}
