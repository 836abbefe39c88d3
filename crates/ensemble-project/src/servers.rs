//! A team whose mailboxes are on NATS servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_core::driver::{LadderFile, LadderStore};
use ensemble_core::durable::open_chosen_file;
use ensemble_core::message::{Name, Timestamp};
use ensemble_core::{Error, Result};
use ensemble_nats::{ClaimReason, LadderClaims, NatsOptions, NatsTransport};
use ensemble_team::admission::MailAdmission;
use rustix::io::Errno;

use crate::open_queue::{OpenQueue, QueueAccess};
use crate::project::{CONFIG_FILE, Project};
use crate::team_link::{LadderClaim, TeamLink};

pub(crate) fn connect(project: &Project, servers: &str, access: QueueAccess) -> Result<OpenQueue> {
    let mut options = project.nats_options_for(servers)?;
    options.recorder = access.options.recorder;
    options.quota = access.options.quota;
    options.creates = access.creates;
    options.shares_patience = access.shares_patience;
    options.patience =
        access.patience_max.map_or(options.patience, |max| max.min(options.patience));
    Ok(OpenQueue::of_team(Arc::new(NatsTransport::connect(&options)?)))
}

impl TeamLink for NatsTransport {
    ensemble_core::forward_calls! {
        server_version() -> String;
        follow_team() -> ();
        follow_requests() -> ();
        host_of_member(agent: &Name) -> Option<Name>;
        claim_member(agent: &Name, host: &Name) -> Option<Name>;
        call_host(host: &Name, text: &str) -> Name;
        forget_call(host: &Name, call: &Name) -> ();
    }

    fn server(&self) -> &str {
        Self::server(self)
    }
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
    fn wait_for_news(&self, seen: u64, longest: Duration) -> u64 {
        Self::wait_for_news(self, seen, longest)
    }
    fn wait_for_mail(&self, mailbox: &Name, longest: Duration) -> Result<bool> {
        self.wait(mailbox, longest)
    }
    fn answer_to(&self, host: &Name, call: &Name) -> Result<Option<String>> {
        self.answer(host, call)
    }
    fn ladder_claims(self: Arc<Self>, state: &Path) -> Box<dyn LadderClaim> {
        let (claims, ladders) = (LadderClaims::new(state), LadderStore::new(state));
        Box::new(HostClaims { servers: self, claims, ladders })
    }
}

struct HostClaims {
    servers: Arc<NatsTransport>,
    claims: LadderClaims,
    ladders: LadderStore,
}

impl LadderClaim for HostClaims {
    fn hold(&self, mailbox: &Name, has_reader: bool, is_handing_out: bool) -> Result<bool> {
        let reason = match (has_reader, is_handing_out) {
            (true, _) => ClaimReason::Reads,
            (false, true) => ClaimReason::HandsOut,
            (false, false) => ClaimReason::Sees,
        };
        self.claims.hold(&self.servers, mailbox, reason, &self.ladders.given_up(mailbox)?)
    }

    fn given_up(&self, mailbox: &Name) -> Result<Vec<LadderFile>> {
        self.claims.given_up(&self.servers, mailbox)
    }

    fn may_have_task(&self, mailbox: &Name) -> bool {
        // If unknown, the mailbox will be read.
        self.servers.may_have_task(mailbox).unwrap_or(true)
    }
}

impl Project {
    /// Access to the servers; `None` if the mailboxes are in the queue's directory. A team that they do not know is
    /// an error: who begins one sets [`NatsOptions::creates`].
    pub fn nats_options(&self) -> Result<Option<NatsOptions>> {
        let Some(servers) = self.servers()? else { return Ok(None) };
        Ok(Some(self.nats_options_for(servers)?.without_creating()))
    }

    /// The beginning of the answers' subjects, which is `_INBOX` or begins so.
    fn inbox(&self, prefix: String) -> Result<String> {
        let rest = prefix.strip_prefix("_INBOX");
        let is_fit = |rest: &str| {
            rest.is_empty() || (rest.starts_with('_') && Name::new(&rest[1..]).is_ok())
        };
        if rest.is_some_and(is_fit) && !prefix.contains('.') {
            return Ok(prefix);
        }
        let detail = "is neither `_INBOX` nor like `_INBOX_worker-1`";
        Err(Error::malformed(self.root().join(CONFIG_FILE), "nats.inbox_prefix", detail))
    }

    fn incomplete(&self, given: &str, absent: &str) -> Error {
        let detail = format!("a client proves itself by both: set `nats: {{{absent}: FILE}}`, too");
        Error::malformed(self.root().join(CONFIG_FILE), format!("nats.{given}"), detail)
    }

    /// The path of a file that the configuration names. The library's error would not name it.
    fn readable(&self, path: Option<&PathBuf>) -> Result<Option<PathBuf>> {
        let Some(path) = path.map(|path| self.root().join(path)) else { return Ok(None) };
        match open_chosen_file(&path)? {
            Some(_) => Ok(Some(path)),
            None => Err(Error::io("open", path, Errno::NOENT)),
        }
    }

    /// Access to these servers, with all other settings as configured.
    pub fn nats_options_for(&self, servers: &str) -> Result<NatsOptions> {
        let config = &self.config.nats;
        let mut options = NatsOptions::new(servers, self.team_name()?);
        options.inbox_prefix = config.inbox_prefix.clone().map(|p| self.inbox(p)).transpose()?;
        options.credentials = self.readable(config.credentials.as_ref())?;
        options.root_certificates = self.readable(config.root_certificates.as_ref())?;
        options.client_certificate = match (&config.certificate, &config.key) {
            (Some(_), None) => return Err(self.incomplete("certificate", "key")),
            (None, Some(_)) => return Err(self.incomplete("key", "certificate")),
            (certificate, key) => {
                let certificate = self.readable(certificate.as_ref())?;
                certificate.zip(self.readable(key.as_ref())?)
            }
        };
        options.replicas = config.replicas.unwrap_or(options.replicas);
        if let Some(patience) = config.patience {
            options.patience = Duration::from_secs(1).max(patience.into());
        }
        options.standstill = Some(Arc::new(MailAdmission::new(self.admissions())));
        options.addresses = Some(self.addresses());
        Ok(options)
    }
}
