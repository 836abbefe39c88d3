//! The subjects of a team.
//!
//! ```text
//! ens.<team>.q.<mailbox>.<id>     a message: its last version is the message and its state
//! ens.<team>.in.<from>.<mailbox>.<id>  a message of a sender that may not write to the mailbox
//! ens.<team>.b.<mailbox>          a mailbox and its settings; here the name is in lower case
//! ens.<team>.g.<mailbox>          the last message admitted to a bounded mailbox
//! $KV.ENSEMBLE_REQUESTS_<team>.>  requests and gates, in a key-value bucket:
//!   requests.<request>.<page>     request, decision, told, closed: each is written once
//!   gates.<task>.<agent>          the plan that blocks this agent's work on the task
//!   demands.<task>.plan           a plan is demanded of each agent that takes the task
//!   ladders.<mailbox>.runner      the host that runs the ladders of the mailbox
//!   hosts.<host>.report           what a host tells of its agents
//!   members.<agent>.host          the host that has the agent
//!   calls.<host>.<call>           what another host asks of this one
//!   answers.<host>.<call>         what the asked host answers
//!   rejected.<request>.<page>.<n> rejected versions
//!   board.<file>                  the blackboard and its lock
//!   leases.<agent>/<epoch>=<kind> beats and signs of a registered agent
//!   control.<file>                what stops the team: PAUSE, CHECKPOINT, ABORT
//! $O.ENSEMBLE_FILES_<team>.>      large content, in an object store
//! enslog.<team>.<session>         the event log, in a stream of its own
//! ```
//!
//! A dot separates the tokens of a subject, so a dot in a name becomes `=`, which no name contains.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use ensemble_core::message::{MessageId, Name};
use ensemble_core::requests::{RequestFile, stem};

#[derive(Clone, Debug)]
pub(super) struct TeamSubjects {
    team: String,
}

fn token(name: &str) -> String {
    name.replace('.', "=")
}

fn name_of(token: &str) -> String {
    token.replace('=', ".")
}

impl TeamSubjects {
    pub(super) fn new(team: &Name) -> Self {
        Self { team: token(team.as_str()) }
    }

    /// Name of the stream of the mailboxes, which must not contain a dot.
    pub(super) fn stream(&self) -> String {
        format!("ENSEMBLE_{}", self.team)
    }

    pub(super) fn log_stream(&self) -> String {
        format!("ENSEMBLE_LOG_{}", self.team)
    }

    pub(super) fn all(&self) -> String {
        format!("ens.{}.>", self.team)
    }

    pub(super) fn log_all(&self) -> String {
        format!("enslog.{}.>", self.team)
    }

    pub(super) fn log(&self, session: &str) -> String {
        format!("enslog.{}.{}", self.team, token(session))
    }

    pub(super) fn message(&self, mailbox: &Name, id: &MessageId) -> String {
        format!("ens.{}.q.{}.{}", self.team, token(mailbox.as_str()), token(id.as_str()))
    }

    /// Where a sender hands a message in that may not write to its mailbox.
    pub(super) fn handed_in(&self, from: &Name, mailbox: &Name, id: &MessageId) -> String {
        let (from, mailbox) = (token(from.as_str()), token(mailbox.as_str()));
        format!("ens.{}.in.{from}.{mailbox}.{}", self.team, token(id.as_str()))
    }

    pub(super) fn all_handed_in(&self) -> String {
        format!("ens.{}.in.>", self.team)
    }

    /// Pattern of the messages that were handed in for a mailbox.
    pub(super) fn handed_in_for(&self, mailbox: &Name) -> String {
        format!("ens.{}.in.*.{}.*", self.team, token(mailbox.as_str()))
    }

    /// The sender in the subject of a message that was handed in.
    pub(super) fn sender_in(subject: &str) -> Option<Name> {
        Name::new(name_of(subject.rsplit('.').nth(2)?)).ok()
    }

    pub(super) fn messages(&self, mailbox: &Name) -> String {
        format!("ens.{}.q.{}.*", self.team, token(mailbox.as_str()))
    }

    pub(super) fn all_messages(&self) -> String {
        format!("ens.{}.q.>", self.team)
    }

    pub(super) fn mailbox_in(subject: &str) -> Option<Name> {
        Name::new(name_of(subject.rsplit('.').nth(1)?)).ok()
    }

    pub(super) fn id_in(subject: &str) -> Option<MessageId> {
        MessageId::new(name_of(subject.rsplit('.').next()?)).ok()
    }

    /// Names that differ only in case share one subject, so only one of them can exist.
    pub(super) fn settings(&self, mailbox: &Name) -> String {
        format!("ens.{}.b.{}", self.team, token(&mailbox.as_str().to_ascii_lowercase()))
    }

    /// The subject of a message that was settled some time ago.
    pub(super) fn settled(&self, mailbox: &Name, id: &MessageId) -> String {
        format!("ens.{}.s.{}.{}", self.team, token(mailbox.as_str()), token(id.as_str()))
    }

    /// Pattern of all messages of a mailbox that were settled some time ago.
    pub(super) fn all_settled(&self, mailbox: &Name) -> String {
        format!("ens.{}.s.{}.*", self.team, token(mailbox.as_str()))
    }

    pub(super) fn with_id(&self, id: &MessageId) -> [String; 2] {
        ["q", "s"].map(|kind| format!("ens.{}.{kind}.*.{}", self.team, token(id.as_str())))
    }

    pub(super) fn reserve(&self, number: usize) -> String {
        format!("ens.{}.reserve.{number}", self.team)
    }

    pub(super) fn reserve_all(&self) -> String {
        format!("ens.{}.reserve.*", self.team)
    }

    /// A subject without messages, for a consumer that is only created to get the time.
    pub(super) fn clock(&self) -> String {
        format!("ens.{}.clock", self.team)
    }

    pub(super) fn all_settings(&self) -> String {
        format!("ens.{}.b.*", self.team)
    }

    pub(super) fn gate(&self, mailbox: &Name) -> String {
        format!("ens.{}.g.{}", self.team, token(mailbox.as_str()))
    }

    /// The bucket of the requests, as `nats kv` names it.
    pub(super) fn bucket(&self) -> String {
        format!("ENSEMBLE_REQUESTS_{}", self.team)
    }

    /// The object store, as `nats object` names it.
    pub(super) fn files(&self) -> String {
        format!("ENSEMBLE_FILES_{}", self.team)
    }

    pub(super) fn files_stream(&self) -> String {
        format!("OBJ_{}", self.files())
    }

    pub(super) fn upload(&self, upload: &str) -> String {
        format!("$O.{}.C.{}", self.files(), token(upload))
    }

    pub(super) fn all_uploads(&self) -> String {
        format!("$O.{}.C.>", self.files())
    }

    pub(super) fn object(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.files(), URL_SAFE.encode(name))
    }

    pub(super) fn all_objects(&self) -> String {
        format!("$O.{}.M.>", self.files())
    }

    pub(super) fn bucket_stream(&self) -> String {
        format!("KV_{}", self.bucket())
    }

    pub(super) fn bucket_all(&self) -> String {
        format!("$KV.{}.>", self.bucket())
    }

    pub(super) fn page(&self, id: &Name, page: RequestFile) -> String {
        format!("$KV.{}.requests.{}.{}", self.bucket(), token(id.as_str()), page.name())
    }

    pub(super) fn every(&self, page: RequestFile) -> String {
        format!("$KV.{}.requests.*.{}", self.bucket(), page.name())
    }

    pub(super) fn all_pages(&self) -> String {
        format!("$KV.{}.requests.*.*", self.bucket())
    }

    pub(super) fn plan_gate(&self, task: &str, agent: &Name) -> String {
        let (task, agent) = (token(&stem(task)), token(agent.as_str()));
        format!("$KV.{}.gates.{task}.{agent}", self.bucket())
    }

    pub(super) fn all_plan_gates(&self) -> String {
        format!("$KV.{}.gates.*.*", self.bucket())
    }

    pub(super) fn plan_demand(&self, task: &str) -> String {
        format!("$KV.{}.demands.{}.plan", self.bucket(), token(&stem(task)))
    }

    pub(super) fn all_plan_demands(&self) -> String {
        format!("$KV.{}.demands.*.plan", self.bucket())
    }

    pub(super) fn ladders(&self, mailbox: &Name) -> String {
        format!("$KV.{}.ladders.{}.runner", self.bucket(), token(mailbox.as_str()))
    }

    pub(super) fn host_report(&self, host: &Name) -> String {
        format!("$KV.{}.hosts.{}.report", self.bucket(), token(host.as_str()))
    }

    pub(super) fn all_host_reports(&self) -> String {
        format!("$KV.{}.hosts.*.report", self.bucket())
    }

    pub(super) fn host_of_member(&self, agent: &Name) -> String {
        format!("$KV.{}.members.{}.host", self.bucket(), token(agent.as_str()))
    }

    pub(super) fn call_of(&self, host: &Name, call: &Name) -> String {
        format!("$KV.{}.calls.{}.{}", self.bucket(), token(host.as_str()), token(call.as_str()))
    }

    pub(super) fn calls_of(&self, host: &Name) -> String {
        format!("$KV.{}.calls.{}.*", self.bucket(), token(host.as_str()))
    }

    pub(super) fn answer_of(&self, host: &Name, call: &Name) -> String {
        format!("$KV.{}.answers.{}.{}", self.bucket(), token(host.as_str()), token(call.as_str()))
    }

    pub(super) fn all_calls(&self) -> [String; 2] {
        ["calls", "answers"].map(|kind| format!("$KV.{}.{kind}.*.*", self.bucket()))
    }

    /// The second and the third token of a key.
    pub(super) fn parts_of_key(subject: &str) -> Option<(Name, Name)> {
        let mut tokens = subject.strip_prefix("$KV.")?.split('.').skip(2);
        let second = Name::new(name_of(tokens.next()?)).ok()?;
        Some((second, Name::new(name_of(tokens.next()?)).ok()?))
    }

    /// A file that the hosts share. No name contains a slash, so it stands for `@`, which no key may contain.
    pub(super) fn shared(&self, path: &str) -> String {
        let (directory, name) = path.split_once('/').unwrap_or(("board", path));
        format!("$KV.{}.{directory}.{}", self.bucket(), token(name).replace('@', "/"))
    }

    /// Pattern of the files of a directory that the hosts share.
    pub(super) fn all_shared(&self, directory: &str) -> String {
        format!("$KV.{}.{directory}.*", self.bucket())
    }

    pub(super) fn shared_name(subject: &str) -> Option<String> {
        Some(name_of(subject.rsplit('.').next()?).replace('/', "@"))
    }

    /// Subject where a rejected version of a page is kept.
    pub(super) fn rejected(&self, id: &Name, page: RequestFile, seq: u64) -> String {
        let (bucket, id) = (self.bucket(), token(id.as_str()));
        format!("$KV.{bucket}.rejected.{id}.{}.{seq}", page.name())
    }

    /// The host, or the session, of a line in the log.
    pub(super) fn log_host(subject: &str) -> Option<Name> {
        let host = subject.strip_prefix("enslog.")?.split('.').nth(1)?;
        Name::new(name_of(host)).ok()
    }

    pub(super) fn key_of(subject: &str) -> Option<BucketKey> {
        let mut tokens = subject.strip_prefix("$KV.")?.split('.').skip(1);
        let (kind, name) = (tokens.next()?, tokens.next()?);
        let Some(third) = tokens.next() else {
            return match kind {
                "board" if name == LOCK => Some(BucketKey::Claim),
                "leases" | "merge" => Some(BucketKey::Claim),
                "board" => Some(BucketKey::Board),
                "control" => Some(BucketKey::Control),
                _ => None,
            };
        };
        match (kind, name, third, tokens.next()) {
            ("requests", id, _, None) => Name::new(name_of(id)).ok().map(BucketKey::Request),
            ("gates", _, agent, None) => Name::new(name_of(agent)).ok().map(BucketKey::Gate),
            ("demands", _, _, None) => Some(BucketKey::Demand),
            ("ladders", _, _, None) | ("members", _, _, None) => Some(BucketKey::Claim),
            ("hosts", _, _, None) => Some(BucketKey::Host),
            ("calls", host, _, None) => Name::new(name_of(host)).ok().map(BucketKey::Call),
            ("answers", _, _, None) => Some(BucketKey::Answer),
            _ => None,
        }
    }
}

const LOCK: &str = "lock";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BucketKey {
    Request(Name),
    Gate(Name),
    Demand,
    /// The claim of a mailbox's ladders, of an agent's name, or of the lock of the blackboard or of merges; or a
    /// heartbeat. Changes to it are not reported.
    Claim,
    /// What a host reports on its agents.
    Host,
    Call(Name),
    Answer,
    Board,
    /// A file that stops the team.
    Control,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_dots_stay_one_token() {
        let subjects = TeamSubjects::new(&Name::new("a.team").unwrap());
        let mailbox = Name::new("worker.1").unwrap();
        let id = MessageId::new("task.7.1").unwrap();
        let subject = subjects.message(&mailbox, &id);
        assert_eq!(subject, "ens.a=team.q.worker=1.task=7=1");
        assert_eq!(TeamSubjects::id_in(&subject), Some(id));
        assert_eq!(TeamSubjects::mailbox_in(&subject), Some(mailbox.clone()));
        let page = subjects.page(&mailbox, RequestFile::Decision);
        assert_eq!(page, "$KV.ENSEMBLE_REQUESTS_a=team.requests.worker=1.decision");
        assert_eq!(TeamSubjects::key_of(&page), Some(BucketKey::Request(mailbox.clone())));
        let gate = subjects.plan_gate("über uns", &mailbox);
        assert_eq!(TeamSubjects::key_of(&gate), Some(BucketKey::Gate(mailbox.clone())));
        assert_eq!(TeamSubjects::key_of(&subjects.ladders(&mailbox)), Some(BucketKey::Claim));
        assert_eq!(TeamSubjects::key_of(&subjects.rejected(&mailbox, RequestFile::Told, 1)), None);
        let call = subjects.call_of(&mailbox, &Name::new("c.1").unwrap());
        assert_eq!(TeamSubjects::key_of(&call), Some(BucketKey::Call(mailbox.clone())));
        assert_eq!(TeamSubjects::parts_of_key(&call).unwrap().1, Name::new("c.1").unwrap());
        let beat = subjects.shared("leases/worker.1@3.beat");
        assert_eq!(beat, "$KV.ENSEMBLE_REQUESTS_a=team.leases.worker=1/3=beat");
        assert_eq!(TeamSubjects::shared_name(&beat).unwrap(), "worker.1@3.beat");
        assert_eq!(TeamSubjects::key_of(&beat), Some(BucketKey::Claim));
        assert_eq!(TeamSubjects::key_of(&subjects.shared("board/lock")), Some(BucketKey::Claim));
        assert_eq!(TeamSubjects::key_of(&subjects.shared("merge/lock")), Some(BucketKey::Claim));
        assert_eq!(
            TeamSubjects::key_of(&subjects.shared("board/state.yaml")),
            Some(BucketKey::Board)
        );
        assert_eq!(
            TeamSubjects::key_of(&subjects.shared("control/PAUSE")),
            Some(BucketKey::Control)
        );
        let twin = Name::new("Worker.1").unwrap();
        assert_eq!(subjects.settings(&mailbox), subjects.settings(&twin));
    }
}
