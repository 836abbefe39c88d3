//! What a server lets a connection publish, as it says itself: what it would deny is not asked.

use serde::Deserialize;
use serde_json::Value;

/// Subject on which servers since 2.10 tell a connection its user and permissions.
pub(super) const USER_INFO: &str = "$SYS.REQ.USER.INFO";

/// The patterns of subjects that a connection may publish to. Without allowed ones, all that are not denied are allowed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PublishRules {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl PublishRules {
    /// The rules in an answer of this server, if it is one: `Some(None)` is a user without limits.
    pub(super) fn of_server(server: &str, answer: &[u8]) -> Option<Option<Self>> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let is_its = answer.pointer("/server/id").and_then(Value::as_str) == Some(server);
        is_its.then(|| Self::read(answer.pointer("/data/permissions/publish")?))
    }

    fn read(publish: &Value) -> Option<Self> {
        let mut rules = Self::deserialize(publish).ok()?;
        for patterns in [&mut rules.allow, &mut rules.deny] {
            let asked: Vec<String> = patterns.iter().filter_map(|it| without_domain(it)).collect();
            patterns.extend(asked);
        }
        Some(rules)
    }

    pub(super) fn permit(&self, subject: &str) -> bool {
        let are_in = |patterns: &[String]| patterns.iter().any(|it| covers(it, subject));
        (self.allow.is_empty() || are_in(&self.allow)) && !are_in(&self.deny)
    }
}

/// The subject that is asked for, of one that a leaf node has mapped into the JetStream domain of the servers.
pub(super) fn without_domain(subject: &str) -> Option<String> {
    let (domain, subject) = subject.strip_prefix("$JS.")?.split_once(".API.")?;
    let api = if subject.starts_with("$KV.") { "" } else { "$JS.API." };
    (!domain.contains(['.', '"'])).then(|| format!("{api}{subject}"))
}

/// Whether a pattern has a subject: `*` is one token, and `>` all that follow.
fn covers(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(publish: &str) -> PublishRules {
        let data = format!(r#"{{"user":"b","permissions":{{"publish":{publish}}}}}"#);
        let answer = format!(r#"{{"server":{{"id":"N1"}},"data":{data}}}"#);
        assert!(PublishRules::of_server("N2", answer.as_bytes()).is_none(), "another server's");
        PublishRules::of_server("N1", answer.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_subject_is_permitted_as_the_server_does() {
        let limited = rules(
            r#"{"allow":["q.w3.*","$JS.API.CONSUMER.CREATE.S.*.q.w3.>","in.>"],"deny":["in.x"]}"#,
        );
        for subject in ["q.w3.1", "$JS.API.CONSUMER.CREATE.S.n.q.w3.*", "in.a.b"] {
            assert!(limited.permit(subject), "{subject}");
        }
        for subject in ["q.w3", "q.w3.1.2", "q.w4.1", "$JS.API.CONSUMER.CREATE.S.n.q.>", "in.x"] {
            assert!(!limited.permit(subject), "{subject}");
        }
        let mapped = rules(r#"{"allow":["$JS.hub.API.CONSUMER.>","$JS.hub.API.$KV.S.k"]}"#);
        assert!(mapped.permit("$JS.API.CONSUMER.CREATE.S") && mapped.permit("$KV.S.k"));
        assert!(!mapped.permit("$JS.API.STREAM.INFO.S"));
        let denied = rules(r#"{"deny":["secret.>"]}"#);
        assert!(denied.permit("q.w4.1") && !denied.permit("secret.a"));
    }

    #[test]
    fn a_user_without_limits_has_no_rules() {
        let unlimited = br#"{"server":{"id":"N1"},"data":{"user":"hub","permissions":null}}"#;
        assert!(matches!(PublishRules::of_server("N1", unlimited), Some(None)));
        assert!(PublishRules::of_server("N1", b"no JSON").is_none());
    }
}
