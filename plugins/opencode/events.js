// OpenCode's events for `ensemble hook`, and what that says for the agent (docs/guides/ways-in.md).
//
//   OpenCode                     hook                    what it says goes
//   chat.message                 prompt                  behind the person's prompt
//   tool.execute.after           tool                    behind the tool's output
//   session.idle                 stop, or failure        into one more prompt
//   session.compacted            start                   nowhere: the next prompt or tool introduces again
//   session.status retry         failure
//   permission or question asked permission, notification
//   message.updated              the next one            nowhere: it counts what the model has used
//
// Sessions of subagents are told nothing; what they ask a person for counts for the session that began them.
// Trouble of ours is no trouble of the agent: every failure ends in an empty answer.
import { spawn } from "node:child_process"

const PROGRAM = "ensemble"
const HOOK_MS_MAX = 10_000
const UNSAID_MAX = 200
const RECORD_MESSAGES_MAX = 40
const LIMIT = /rate.?limit|quota|overload|too many|billing/i
// As Claude Code is allowed by its profile; a test compares them. What stops agents, deletes mail, writes a file or sends
// anything to another machine still asks.
const ALLOWED = [
  "assign", "agent instruct", "agent ping", "agent pong", "agent prime", "agent whoami", "admin lint", "inbox",
  "mailbox extend", "mailbox release", "mailbox recall", "recv", "reply", "report", "request answer", "request ask", "request cancel", "request list",
  "request plan", "send", "settle", "status", "step", "task", "team", "why",
]

// Answers of the model that no hook has said yet, by session; OpenCode keeps them in a database of its own.
const unsaid = new Map()

/** Runs one hook and gives its answer. */
function hook(event, input) {
  const usage = unsaid.get(input.session_id)
  unsaid.delete(input.session_id)
  return new Promise((resolve) => {
    const options = { stdio: ["pipe", "pipe", "ignore"], timeout: HOOK_MS_MAX }
    const child = spawn(PROGRAM, ["hook", event, "--provider", "opencode"], options)
    let text = ""
    child.stdout?.on("data", (data) => (text += data))
    child.stdin?.on("error", () => {})
    child.on("error", () => resolve({}))
    child.on("close", () => {
      try {
        resolve(JSON.parse(text))
      } catch {
        resolve({})
      }
    })
    child.stdin?.end(JSON.stringify({ ...input, usage }))
  })
}

/** What a hook wants to be added, as a text of its own. */
const added = (answer) => answer.hookSpecificOutput?.additionalContext

/** Shows the person what came, for a few seconds: what a hook adds is not on the screen. */
const show = (client, { systemMessage: message }) =>
  message && client.tui.showToast({ body: { message, variant: "info" } }).catch(() => {})

/**
 * Lets the agent run our verbs where it would ask for every command. Of several rules the last one counts: ours stand
 * right behind that one, so each rule of the user that follows wins.
 */
function allow(config) {
  const permission = config.permission
  if (typeof permission !== "object" || permission === null) return
  const bash = permission.bash === "ask" ? { "*": "ask" } : permission.bash
  if (typeof bash !== "object" || bash?.["*"] !== "ask") return
  const ours = ALLOWED.map((verb) => [`ensemble ${verb} *`, "allow"])
  const rules = Object.entries(bash).flatMap((rule) => (rule[0] === "*" ? [rule, ...ours] : [rule]))
  permission.bash = Object.fromEntries(rules)
}

export default {
  id: "ensemble-events",
  server: async ({ client }) => {
    const parents = new Map()
    const [lastPrompt, failed, retries, compacted] = [new Map(), new Map(), new Set(), new Set()]

    const parentOf = async (id) => {
      if (!parents.has(id)) {
        const found = await client.session.get({ path: { id } }).catch(() => undefined)
        parents.set(id, found?.data?.parentID)
      }
      return parents.get(id)
    }
    const rootOf = async (id) => {
      const parent = await parentOf(id)
      return parent ? rootOf(parent) : id
    }
    const isRoot = async (id) => !(await parentOf(id))
    // What OpenCode has stored of the last turns: it shows which messages a model was given.
    const recordOf = async (id) => {
      const query = { limit: RECORD_MESSAGES_MAX }
      const found = await client.session.messages({ path: { id }, query }).catch(() => undefined)
      const parts = (found?.data ?? []).flatMap((message) => message.parts)
      return parts.map((part) => part.text ?? part.state?.output ?? "").join("\n")
    }

    const atRest = async (id) => {
      const error = failed.get(id)
      failed.delete(id)
      if (error) return hook("failure", { session_id: id, error })
      const answer = await hook("stop", { session_id: id, record: await recordOf(id) })
      if (answer.decision !== "block") return
      const parts = [{ type: "text", text: answer.reason }]
      await client.session.promptAsync({ path: { id }, body: { ...lastPrompt.get(id), parts } })
    }
    const working = (id) => hook("notification", { session_id: id, notification_type: "working" })

    const seen = async ({ type, properties }) => {
      const id = properties?.sessionID
      switch (type) {
        case "session.created":
          parents.set(properties.info.id, properties.info.parentID)
          return
        case "message.updated": {
          const info = properties.info
          if (info?.role !== "assistant" || !info.time?.completed) return
          const { input, output, reasoning, cache } = info.tokens ?? {}
          const root = await rootOf(info.sessionID)
          unsaid.set(root, [...(unsaid.get(root) ?? []).slice(-UNSAID_MAX), {
            at: new Date(info.time.completed).toISOString(),
            id: info.id,
            model: info.modelID,
            input,
            output,
            reasoning,
            cache_read: cache?.read,
            cache_write: cache?.write,
            cost: info.cost,
          }])
          return
        }
        case "session.idle":
          if (await isRoot(id)) await atRest(id)
          return
        case "session.compacted":
          compacted.add(id)
          if (await isRoot(id)) await hook("start", { session_id: id, source: "compact" })
          return
        case "session.error": {
          const error = properties.error
          if (!id || error?.name === "MessageAbortedError") return
          const limit = error?.data?.statusCode === 429 ? "rate_limit: " : ""
          failed.set(id, `${limit}${error?.data?.message ?? error?.name ?? "unknown error"}`)
          return
        }
        case "session.status": {
          const { type: status, message } = properties.status
          if (!(await isRoot(id))) return
          if (status === "retry" && LIMIT.test(message)) {
            retries.add(id)
            await hook("failure", { session_id: id, error: `rate_limit: ${message}` })
          } else if (status === "busy" && retries.delete(id)) await working(id)
          return
        }
        case "permission.asked":
          await hook("permission", { session_id: await rootOf(id), tool_name: properties.permission })
          return
        case "question.asked":
          await hook("notification", {
            session_id: await rootOf(id),
            notification_type: "dialog",
            message: properties.questions?.[0]?.question ?? "a question",
          })
          return
        case "permission.replied":
        case "question.replied":
        case "question.rejected":
          await working(await rootOf(id))
      }
    }

    // One after another, in their order.
    let events = Promise.resolve()
    return {
      config: async (config) => allow(config),
      event: async ({ event }) => {
        events = events.then(() => seen(event)).catch(() => {})
      },
      "chat.message": async (input, output) => {
        const id = input.sessionID
        if (!(await isRoot(id))) return
        const { agent, model, variant } = input
        lastPrompt.set(id, { agent, model, variant })
        compacted.delete(id)
        const answer = await hook("prompt", { session_id: id, hook_event_name: "chat.message" })
        show(client, answer)
        const text = added(answer)
        const first = output.parts[0]
        if (!text || !first) return
        output.parts.push({
          id: `${first.id}e`,
          sessionID: id,
          messageID: first.messageID,
          type: "text",
          text,
          synthetic: true,
        })
      },
      "tool.execute.after": async (input, output) => {
        const id = input.sessionID
        if (!output || !(await isRoot(id))) return
        const event = compacted.delete(id) ? "prompt" : "tool"
        const answer = await hook(event, { session_id: id, hook_event_name: "tool.execute.after" })
        show(client, answer)
        const text = added(answer)
        if (!text) return
        // Tools of MCP servers answer in parts.
        if (Array.isArray(output.content)) output.content.push({ type: "text", text })
        else output.output = `${output.output ?? ""}\n\n${text}`
      },
    }
  },
}
