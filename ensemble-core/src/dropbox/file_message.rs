//! The message that a drop-box file becomes: one rule for the watcher and for the library's own.

use super::{CompleteFile, LedgerEntry};
use crate::Result;
use crate::message::fields::{
    TASK_FIELDS, TASK_ID_FIELDS, agent_among, agent_of_text, author_fields, field_text, plain_field,
};
use crate::message::{Envelope, Name, fill_body};
use crate::spool::Spool;

const SOURCE_BYTES_MAX: usize = 200;
const TASK_BYTES_MAX: usize = 128;

impl CompleteFile {
    /// Who has written it, as it says. The seed's workers are numbers: `1` is `worker-1`.
    pub fn author(&self) -> Option<Name> {
        self.signer.clone().or_else(|| agent_of_text(&self.author_text()?))
    }

    /// Learns which mailbox the author has, who may have written its name in another case.
    pub fn find_signer(&mut self, spool: &Spool) -> Result<()> {
        if let Some(text) = self.author_text() {
            self.signer = agent_among(&text, &spool.mailboxes()?).cloned();
        }
        Ok(())
    }

    pub fn task_field(&self) -> Option<String> {
        field_text(&self.fields, &TASK_FIELDS)
    }

    pub fn set_task(&mut self, task: &str) {
        if let Some(fields) = self.fields.as_object_mut() {
            fields.retain(|name, _| !TASK_FIELDS.contains(&&*plain_field(name)));
            fields.insert(TASK_FIELDS[0].to_owned(), task.into());
        }
    }

    fn author_text(&self) -> Option<String> {
        field_text(&self.fields, &author_fields(self.kind.as_ref().map(Name::as_str)))
    }

    /// The message for one recipient of its route: the file's text, or its attachment where it is too large. `kind`
    /// and `stem` are those of the route.
    pub fn to_envelope(
        &self,
        entry: &LedgerEntry,
        to: Name,
        kind: Option<&Name>,
        stem: Option<&str>,
        spool: &Spool,
    ) -> Result<Envelope> {
        let (id, path) = (entry.message_id(&to), self.path());
        let mut envelope = Envelope::new(to, "").with_id(id).with_source(message_source(&path));
        envelope = kind.cloned().into_iter().fold(envelope, Envelope::with_kind);
        envelope.task_id = self.task(&envelope.kind, stem);
        let trace = field_text(&self.fields, &["traceparent"]);
        envelope.traceparent = trace.and_then(|text| text.parse().ok());
        envelope = self.author().into_iter().fold(envelope, Envelope::from);
        let (mut envelope, rest) = fill_body(envelope, self.content.clone())?;
        if let Some(rest) = rest {
            let attachment = spool.attach(&rest)?;
            envelope.body = format!("{path} is attached: {} bytes\n", attachment.bytes);
            envelope.attachment = Some(attachment);
        }
        Ok(envelope)
    }

    /// The task that it is about: as it says, otherwise by its name.
    fn task(&self, kind: &Name, stem: Option<&str>) -> Option<String> {
        let is_task = &*self.box_name == "tasks" || kind.as_str() == "task";
        let names: &[&str] = if is_task { &TASK_ID_FIELDS } else { &TASK_FIELDS };
        let task = field_text(&self.fields, names).or_else(|| stem.map(str::to_owned))?;
        let is_id =
            !task.is_empty() && task.len() <= TASK_BYTES_MAX && !task.contains(char::is_control);
        is_id.then_some(task)
    }
}

/// The field `source` of a message: the path, without control characters, cut to fit.
pub fn message_source(path: &str) -> String {
    let mut source = String::with_capacity(path.len());
    for c in path.chars().filter(|c| !c.is_control()) {
        if source.len() + c.len_utf8() > SOURCE_BYTES_MAX {
            break;
        }
        source.push(c);
    }
    source
}
