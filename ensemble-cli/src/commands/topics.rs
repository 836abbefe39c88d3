//! The topics of `ensemble help`: each fits one screen.

/// A text about what several commands share.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

pub(super) const TOPICS: [Topic; 6] = [
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
  notified   the recipient was told, by a hook, a server or its pane
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
  ensemble release ID              another agent shall do it
  ensemble mailbox extend ID 10m   the work goes on

When a lease is over, the message is delivered again. After too many deliveries
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
}
