//! The JSON form of an envelope: what is read of it.

use serde::Deserialize;

use super::{Attachment, MessageId, Name, Timestamp};

/// The fields of an [`Envelope`](super::Envelope) as JSON, before its limits are checked.
#[derive(Deserialize)]
pub(super) struct JsonEnvelope {
    pub(super) id: MessageId,
    #[serde(rename = "type")]
    pub(super) kind: Option<Name>,
    pub(super) from: Option<Name>,
    pub(super) proof: Option<String>,
    pub(super) project: Option<Name>,
    pub(super) to: Name,
    pub(super) created_at: Timestamp,
    pub(super) correlation_id: Option<String>,
    pub(super) causation_id: Option<String>,
    pub(super) replaces: Option<MessageId>,
    pub(super) task_id: Option<String>,
    pub(super) attempt: Option<u32>,
    #[serde(default)]
    pub(super) priority: u8,
    pub(super) when: Option<String>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) source: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) attachment: Option<Attachment>,
    pub(super) body: String,
}

#[cfg(test)]
mod tests {
    use crate::message::{
        Attachment, DeliveryClass, Digest, Envelope, MessageId, SenderProof, Timestamp,
    };
    use crate::proto::testing::name;

    fn full() -> Envelope {
        let mut envelope = Envelope::new(name("worker-1"), "line 1\nline \u{1f980}\t\"quoted\"\n")
            .from(name("lead"))
            .with_proof(Some(SenderProof::Pass))
            .with_kind(name("task"))
            .with_id(MessageId::new("task-1.2").unwrap())
            .with_task("über uns")
            .with_attempt(2)
            .with_priority(9)
            .with_source("reports/x.yaml")
            .with_attachment(Attachment { sha256: Digest::of(b"content"), bytes: 7 });
        envelope.correlation_id = Some("request-1".to_owned());
        envelope.causation_id = Some("message-0".to_owned());
        envelope.replaces = MessageId::new("message-1").ok();
        envelope.project = Some(name("website"));
        envelope.when = Some(DeliveryClass::Interrupt);
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        envelope.traceparent = traceparent.parse().ok();
        assert!(envelope.traceparent.is_some());
        envelope.expires_at = Some(Timestamp::from_unix_millis(1_900_000_000_123));
        envelope
    }

    #[test]
    fn an_envelope_survives_the_way_through_json() {
        for envelope in [full(), Envelope::new(name("worker-1"), "")] {
            let json = serde_json::to_string(&envelope).unwrap();
            let back: Envelope = serde_json::from_str(&json).unwrap();
            assert_eq!(back, envelope);
            assert_eq!(serde_json::to_string(&back).unwrap(), json);
        }
    }

    /// A retry of a publish would otherwise skip the search for the id.
    #[test]
    fn an_envelope_from_json_may_be_stored_already() {
        let made = Envelope::new(name("worker-1"), "");
        let json = serde_json::to_string(&made).unwrap();
        assert!(!made.note_offer());
        assert!(serde_json::from_str::<Envelope>(&json).unwrap().note_offer());
    }

    #[test]
    fn what_a_file_may_not_say_json_may_not_say_either() {
        let json = serde_json::to_value(full()).unwrap();
        for (field, value) in [
            ("priority", serde_json::json!(10)),
            ("to", serde_json::json!("../x")),
            ("id", serde_json::json!("")),
            ("task_id", serde_json::json!("a\nb")),
            ("source", serde_json::json!("x".repeat(257))),
            ("created_at", serde_json::json!("yesterday")),
        ] {
            let mut bad = json.clone();
            bad[field] = value;
            let error = serde_json::from_value::<Envelope>(bad).unwrap_err().to_string();
            assert!(!error.is_empty(), "{field}");
        }
        for required in ["id", "to", "created_at", "body"] {
            let mut bad = json.clone();
            bad.as_object_mut().unwrap().remove(required);
            assert!(serde_json::from_value::<Envelope>(bad).is_err(), "{required}");
        }
    }
}
