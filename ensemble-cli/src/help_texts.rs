//! The texts of help: the first day, the groups of commands, and the topics. Each text fits one screen.

/// A text about what several commands share.
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const TOPICS: [Topic; 6] = [
    Topic { name: "delivery", text: DELIVERY },
    Topic { name: "leases", text: LEASES },
    Topic { name: "identity", text: IDENTITY },
    Topic { name: "exit-codes", text: EXIT_CODES },
    Topic { name: "for-agents", text: FOR_AGENTS },
    Topic { name: "options", text: OPTIONS },
];

const DELIVERY: &str = "\
A message goes through these states, and `ensemble why ID` tells its story:

  stored     it is in the recipient's mailbox, and a crash does not lose it
  notified   the recipient was notified by a hook, a server or its pane
  submitted  the hint was seen to be taken
  acked      the recipient has received it and holds it for a time
  settled    its work is done
  dead       it was given up; `ensemble dead retry ID` delivers it again

The watcher tells agents by the best way that each offers. Mail waits as long as
the agent is away.
`send --until STATE --wait DURATION` returns when the message has got so far.
";

const LEASES: &str = "\
An agent that receives a message holds it for a time, the lease: 5 minutes
unless the mailbox has another. Three commands end or prolong it:

  ensemble settle ID               the work is done
  ensemble mailbox release ID      another agent shall do it
  ensemble mailbox extend ID 10m   the work takes longer

When a lease ends, the message is delivered again. After too many deliveries
it becomes a dead letter. Each delivery has a higher number, the epoch. A holder
of an older epoch can no longer settle.
";

const IDENTITY: &str = "\
An agent is known by the pass that it was started with, or by the pane in which
it runs. It may use no other name. From outside, `--as NAME` or
ENSEMBLE_AGENT_ID names an agent that is not up. Without either, `operator`
acts.

`ensemble agent whoami` says who is asking, and how that is known.
";

const EXIT_CODES: &str = "\
Each command ends with one of these:

  0   done
  1   refused or failed
  2   the command line is wrong, or a file that it names, or ensemble.yaml
  3   nothing there (also an unknown name or id), or a wait timed out
  4   a broken invariant or corrupt data
  5   a needed program is missing
  42  an agent's graceful abort, passed on
  75  busy: the same call may succeed later

With --json a failure is one line on stderr:

  {\"error\":{\"code\",\"message\",\"hint\",\"exit\"}}
";

const FOR_AGENTS: &str = "\
The whole work of an agent in four commands:

  ensemble recv --wait 10m         receive the next message, and hold it
  ensemble settle ID               its work is done
  ensemble send --to NAME TEXT     say something to another agent
  ensemble request answer ID --approve

`ensemble agent prime` prints what an agent should know now: its name, what it
holds, what waits. `ensemble init --agents-md` adds the team's rules to
AGENTS.md.
";

const OPTIONS: &str = "\
Every command has these options:

  --queue DIR  the queue's directory [default: $ENSEMBLE_QUEUE, else that of the
               project, which is searched upwards from the working directory]
  --as NAME    act as this agent [default: $ENSEMBLE_AGENT_ID, else
               $LIZA_AGENT_ID, else the agent of this pane, else operator]
  --json       print JSON, one object a line; failures, too, on stderr

Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.
Colours appear on terminals only, and not if NO_COLOR is set.
";

/// A group of help: its name, its summary, and its words in the order of the list of verbs.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) words: &'static [&'static str],
}

pub(crate) const GROUPS: [Group; 7] = [
    Group {
        name: "agents",
        words: &["claude", "codex", "opencode", "gemini", "up", "down", "team", "agent"],
    },
    Group { name: "overview", words: &["status", "top", "why", "log"] },
    Group {
        name: "messages",
        words: &["send", "recv", "reply", "settle", "inbox", "dead", "mailbox"],
    },
    Group { name: "tasks", words: &["assign", "report", "task"] },
    Group { name: "decisions", words: &["request", "pause", "resume"] },
    Group { name: "blackboard", words: &["board", "step"] },
    Group { name: "setup", words: &["init", "doctor", "demo", "admin", "help"] },
];

/// What bare `ensemble`, `-h` and `--help` print: 24 lines of 80 columns at most.
pub(crate) const FIRST_DAY: &str = "\
A message broker for teams of coding agents whose queue is a directory

The first day:
  ensemble init                       make a queue in this project
  ensemble claude                     start Claude Code as a member of the team
  ensemble send --to NAME TEXT        send a message
  ensemble recv --as NAME --wait 10m  receive the next message
  ensemble settle ID --as NAME        mark its work as done
  ensemble up                         start the team; `down` ends it
  ensemble status                     see what needs you; `top` is the live view
  ensemble why ID                     read the story of a task or an agent
  ensemble doctor                     find what is missing on this machine

Groups, as in `ensemble help agents`:
  agents      start agents, take them in, and end them
  overview    see what happens, and what needs you
  messages    send, receive and settle
  tasks       hand out tasks: by mail, in steps, with review
  decisions   ask, answer, pause and resume
  blackboard  tasks, supervisors and steps for planned work
  setup       project, checks, hooks, MCP, servers and the shell

`ensemble help --all` lists every command, `ensemble COMMAND -h` explains one.
";

/// What the help of the whole program ends with.
pub(crate) const AFTER_HELP: &str = "\
Durations are plain seconds or have units: 90, 90s, 5m, \"1h 30m\", 500ms.

Exit codes: 0 done · 1 refused or failed · 2 usage · 3 nothing there, or a wait
timed out · 4 broken invariant or corrupt data · 5 a needed program is missing ·
42 an agent's graceful abort · 75 busy, try again";

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and columns of a terminal.
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
        let groups = GROUPS.iter().all(|group| FIRST_DAY.contains(&format!("\n  {} ", group.name)));
        assert!(groups, "each group is named");
    }
}
