//! The texts of help: the first page, the groups of commands, and the topics. Each text fits one screen.

pub(crate) struct HelpTopic {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const TOPICS: [HelpTopic; 6] = [
    HelpTopic { name: "delivery", text: DELIVERY },
    HelpTopic { name: "leases", text: LEASES },
    HelpTopic { name: "identity", text: IDENTITY },
    HelpTopic { name: "exit-codes", text: EXIT_CODES },
    HelpTopic { name: "for-agents", text: FOR_AGENTS },
    HelpTopic { name: "options", text: OPTIONS },
];

pub(crate) const PROVIDERS: &str = "providers";
pub(crate) const PROVIDERS_END: &str = "
`ensemble doctor` says if an installed version is newer than that.

Other ways to run an agent:

  provider: acp       any program that speaks the Agent Client Protocol
  provider: generic   any program: it gets a typed hint when it seems to wait
  providers: {NAME: …} in ensemble.yaml describes another program
";

const DELIVERY: &str = "\
A message goes through these states, and `ensemble why ID` shows them:

  stored     it is in the recipient's mailbox, and a crash does not lose it
  notified   the watcher saw it, and knows an agent to notify
  submitted  a hint or the message was handed to the agent
  acked      the recipient has received it and holds it under a lease
  confirmed  its transcript shows the turn that read it
  settled    its work is done
  dead       delivery failed; `ensemble dead retry ID` delivers it again

The watcher notifies each agent by the best way that it offers. Mail for an
agent that is not running waits until it starts.
`send --until STATE --wait DURATION` returns when the message is in that state.
";

const LEASES: &str = "\
An agent that receives a message holds it under a lease of 5 minutes, unless the
mailbox is configured otherwise. Three commands end or extend the lease:

  ensemble settle ID               the work is done
  ensemble mailbox release ID      give it back, so that another agent can do it
  ensemble mailbox extend ID 10m   the work takes longer

When a lease expires, the message is delivered again. After too many deliveries
it becomes a dead letter. Each delivery has a higher number, the epoch, and the
holder of an older epoch can no longer settle.
";

const IDENTITY: &str = "\
An agent is identified by the pass that it was started with, or by its pane, and
cannot use another name. Outside of agents, `--as NAME` or ENSEMBLE_AGENT_ID
names an agent that is not running. Without either, you are `operator`.

`ensemble agent whoami` shows who you are, and how that is known.
";

const EXIT_CODES: &str = "\
Each command ends with one of these:

  0   done
  1   refused or failed
  2   a mistake in the command line, in a file that it names or in ensemble.yaml
  3   not found (also an unknown name or id), or a wait timed out
  4   a broken invariant or corrupt data
  5   a needed program is missing
  42  an agent's graceful abort, passed on
  75  busy: the same call may succeed later

With --json a failure is one line on stderr:

  {\"error\":{\"code\",\"message\",\"hint\",\"exit\"}}
";

const FOR_AGENTS: &str = "\
An agent needs five commands:

  ensemble recv --wait 10m         receive the next message, and hold it
  ensemble reply ID TEXT           answer it
  ensemble settle ID               its work is done
  ensemble send --to NAME TEXT     send a message to another agent
  ensemble request answer ID --approve

`ensemble agent prime` prints what an agent should know now: its name, what it
holds, and what waits. `ensemble init --agents-md` adds the team's rules to
AGENTS.md.
";

const OPTIONS: &str = "\
Every command has these options:

  --queue DIR  the queue's directory [default: $ENSEMBLE_QUEUE, or that of the
               project around the working directory]
  --as NAME    act as this agent [default: $ENSEMBLE_AGENT_ID, the agent of this
               pane, or operator]
  --json       print JSON, one object a line; failures, too, on stderr

Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.
Colours appear on terminals only, and not if NO_COLOR is set.
";

pub(crate) struct HelpGroup {
    pub(crate) name: &'static str,
    pub(crate) words: &'static [&'static str],
}

pub(crate) const GROUPS: [HelpGroup; 7] = [
    HelpGroup {
        name: "agents",
        words: &["claude", "codex", "opencode", "gemini", "up", "down", "team", "agent"],
    },
    HelpGroup { name: "overview", words: &["status", "top", "why", "log"] },
    HelpGroup {
        name: "messages",
        words: &["send", "recv", "reply", "settle", "inbox", "dead", "mailbox"],
    },
    HelpGroup { name: "tasks", words: &["task", "assign", "report"] },
    HelpGroup { name: "decisions", words: &["request", "pause", "resume"] },
    HelpGroup { name: "blackboard", words: &["board", "step"] },
    HelpGroup { name: "setup", words: &["init", "doctor", "demo", "admin", "help"] },
];

/// The group of the commands that agents, hooks and scripts run. Help for people leaves them out.
pub(crate) const PROGRAMS: &str = "programs";

pub(crate) const FOR_PROGRAMS: &str = "agent register, agent verify, agent heartbeat, agent handoff, agent exit, \
     agent unregister, agent pong, step heartbeat, log record, log replay, admin hook, admin tmux-status, admin schema, \
     admin conformance, admin man";

/// The help that bare `ensemble`, `-h` and `--help` print: 24 lines of 80 columns at most, with 14 commands.
pub(crate) const FIRST_DAY: &str = "\
A message queue for coding agents, in a plain directory

Start agents:
  init      make a queue in this project
  claude    start Claude Code in this terminal, as a member of the team
  codex     start Codex in this terminal; `opencode` and `gemini` do the same
  up        start the whole team of ensemble.yaml; `down` stops it
Mail:
  send      send a message: `ensemble send --to codex 'review the last commit'`
  recv      receive the next message
  settle    mark the work of a message as done
Overview:
  status    show what needs you, and what each agent does
  top       show that live
  why       show what happened to a message, a task or an agent
  doctor    check this machine, and say what is missing

`ensemble COMMAND -h` explains a command, `ensemble help --all` lists all, and
`ensemble help GROUP` those of one group: agents, overview, messages, tasks,
decisions, blackboard, setup, programs.
";

pub(crate) const AFTER_HELP: &str = "\
Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.

Exit codes: 0 done · 1 refused or failed · 2 usage · 3 not found, or a wait
timed out · 4 broken invariant or corrupt data · 5 a needed program is missing ·
42 an agent's graceful abort · 75 busy, try again";

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: (usize, usize) = (24, 80);

    #[test]
    fn each_topic_fits_one_screen() {
        for topic in &TOPICS {
            assert!(topic.text.lines().count() < SCREEN.0, "{}", topic.name);
            assert!(topic.text.lines().all(|line| line.len() <= SCREEN.1), "{}", topic.name);
        }
    }

    #[test]
    fn the_first_day_fits_one_screen() {
        assert!(FIRST_DAY.lines().count() <= 24);
        assert!(FIRST_DAY.lines().all(|line| line.chars().count() <= 80));
        let (_, groups) = FIRST_DAY.split_once("one group:").unwrap();
        let names = GROUPS.iter().map(|group| group.name).chain([PROGRAMS]);
        assert!(names.into_iter().all(|name| groups.contains(name)), "each group is named");
    }
}
