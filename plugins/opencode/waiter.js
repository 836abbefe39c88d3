// Wakes an idle OpenCode with its mail, in the session that the person sees (docs/guides/ways-in.md).
//
//   the screen shows             the waiter          mail goes
//   no session: start, /new      for no session      into a new session, which is shown then
//   a session                    for that session    into it; a person's draft stays
//
// `ensemble hook wait` sleeps until mail lands, says it on stderr and ends with code 2. It ends silently where it has
// nothing to wait for, and is started again when a turn ends or another session is shown.
import { spawn, spawnSync } from "node:child_process"

const PROGRAM = "ensemble"
const LOOK_MS = 250
const HOOK_MS_MAX = 2_000
const MAIL = 2

const command = (event) => ["hook", event, "--provider", "opencode"]

/** Runs a hook that has nothing to say here. */
function tell(event, input) {
  spawnSync(PROGRAM, command(event), { input: JSON.stringify(input), stdio: ["pipe", "ignore", "ignore"], timeout: HOOK_MS_MAX })
}

export default {
  id: "ensemble-waiter",
  tui: async (api) => {
    const created = new Set()
    let child, session

    /** The session on the screen, or the one that began it. */
    const shown = () => {
      const route = api.route.current
      let id = route?.name === "session" ? route.params?.sessionID : undefined
      for (let parent; id && (parent = api.state.session.get(id)?.parentID); ) id = parent
      return id
    }

    const deliver = async (text) => {
      const before = shown()
      let id = before
      if (!id) {
        const made = await api.client.session.create({})
        id = made.data.id
        created.add(id)
      }
      const info = api.state.session.get(id)
      const model = info?.model && { providerID: info.model.providerID, modelID: info.model.id }
      const parts = [{ type: "text", text }]
      await api.client.session.promptAsync({ sessionID: id, agent: info?.agent, model, parts })
      if (!before && !shown()) api.route.navigate("session", { sessionID: id })
    }

    const wait = () => {
      if (child) return
      const mine = spawn(PROGRAM, command("wait"), { stdio: ["pipe", "ignore", "pipe"] })
      child = mine
      let text = ""
      mine.stderr?.on("data", (data) => (text += data))
      mine.stdin?.on("error", () => {})
      mine.on("error", () => {})
      mine.on("close", (code) => {
        const isLast = child === mine
        if (isLast) child = undefined
        // Mail that was handed over while the session changed goes into the one that is shown now. What a killed waiter
        // has received is given back by the next hook. A prompt that failed is no loss: the lease of its message ends.
        if (code === MAIL && text) deliver(text).catch(() => isLast && wait())
      })
      mine.stdin?.end(JSON.stringify({ session_id: session }))
    }

    const look = () => {
      const now = shown()
      if (now === session) return
      const source = now ? "resume" : "clear"
      session = now
      const old = child
      child = undefined
      old?.kill()
      // A session that was just made begins with a prompt, which says the rest.
      if (!created.has(now)) tell("start", { session_id: session, source })
      wait()
    }

    api.event.on("session.created", (event) => created.add(event.properties.info.id))
    api.event.on("session.idle", (event) => {
      if (event.properties.sessionID === session) wait()
    })
    session = shown()
    tell("start", { session_id: session, source: "startup" })
    wait()
    const looking = setInterval(() => {
      try {
        look()
      } catch {}
    }, LOOK_MS)
    api.lifecycle.onDispose(() => {
      clearInterval(looking)
      const old = child
      child = undefined
      old?.kill()
      tell("end", { session_id: session })
    })
  },
}
