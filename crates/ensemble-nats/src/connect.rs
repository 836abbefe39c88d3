//! Makes the connection, and the stream of a new team.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::NatsTransport;
use super::connect_fault::ConnectFault;
use super::denials::UserDenials;
use super::lazy_stream::LazyStream;
use super::options::NatsOptions;
use super::patience::CallPatience;
use super::publish_rules::{PublishRules, USER_INFO};
use super::runtime::Runtime;
use super::server_time::ServerTime;
use super::stream_state::StreamState;
use super::subject::TeamSubjects;
use super::team::MailboxWatches;
use super::wire::{ANSWER_PATIENCE, OperationNames, Wire, notes_removals};
use ensemble_core::durable::read_chosen_file;
use ensemble_core::{Error, Result};
use tokio::time::timeout;

const CREDENTIALS_BYTES_MAX: usize = 64 * 1024;
/// A bundle of all authorities of a system has a quarter of this.
const PEM_BYTES_MAX: usize = 1024 * 1024;

/// How long a server may take to say what it permits. Without its answer, all is asked, and it may deny that.
const RULES_PATIENCE: Duration = Duration::from_millis(500);

/// Longest wait before the next try to reach a lost server.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);

impl NatsTransport {
    /// Connects, and creates the team's stream if it does not exist and the options say so.
    pub fn connect(options: &NatsOptions) -> Result<Self> {
        let here = options.servers_shown();
        let fault = |operation, detail: String, unreachable| Error::Server {
            operation,
            server: here.clone(),
            detail,
            unreachable,
        };
        let runtime = Runtime::start().map_err(|e| fault("start threads", e.to_string(), false))?;
        let (made, connections) = tokio::sync::watch::channel(0u64);
        let (servers, patience) = (options.servers_shown(), options.patience);
        let shared = CallPatience::new(patience, options.shares_patience);
        let denials = UserDenials::default();
        let connecting = connect_options(options, made, denials.clone())?;
        // A client that may hear no answers but its own has other limits, too.
        let limits = options.inbox_prefix.as_ref().map(|_| denials.clone());
        let (client, context) = runtime
            .run(shared.left(), reach_servers(connecting, servers, limits))
            .ok_or_else(|| fault("connect", "no answer in time: is it up?".to_owned(), true))?
            .map_err(|error| {
                let ConnectFault { detail, may_pass } = ConnectFault::new(&error, options);
                fault("connect", detail, may_pass)
            })?;
        let subjects = TeamSubjects::new(&options.team);
        let size = (options.replicas, versions_max(&client));
        let wires =
            wires(client, context, &subjects, (here.clone(), shared, denials), &connections);
        let (wire, [bucket, files]) = runtime
            .run(patience, wires)
            .flatten()
            .ok_or_else(|| fault("open the stream", "its name is invalid".to_owned(), false))?;
        let config = options.creates.then(|| stream_config(&subjects, size));
        let opening = Arc::clone(&wire);
        let opened = runtime.run(patience, async move { opening.open(config.as_ref()).await });
        let silent = || fault("open the stream", "no answer in time".to_owned(), true);
        let is_created = opened.ok_or_else(silent)??;
        let transport = Self {
            runtime,
            wire,
            bucket: LazyStream::new(bucket, bucket_config(&subjects, size)),
            bucket_changes: Mutex::default(),
            files: LazyStream::new(files, files_config(&subjects, size)),
            subjects,
            clock: options.clock.clone(),
            recorder: Arc::clone(&options.recorder),
            standstill: options.standstill.clone(),
            addresses: options.addresses.clone(),
            connections,
            watches: MailboxWatches::default(),
            team: Mutex::default(),
            handed_in: Mutex::default(),
            open: Mutex::default(),
            news: Arc::default(),
            settings: Mutex::default(),
            names: Mutex::default(),
            has_log: std::sync::atomic::AtomicBool::new(false),
            quota: options.quota.clone(),
            room: Mutex::default(),
            copied: Mutex::default(),
            held: Mutex::default(),
        };
        // A watcher makes later what is missing, as at a server without room.
        let _ = is_created.then(|| transport.keep_reserve());
        Ok(transport)
    }
}

/// Connects to one of the servers, and asks it for the limits, if there may be some.
async fn reach_servers(
    connecting: ConnectOptions,
    servers: String,
    limits: Option<UserDenials>,
) -> Result<(async_nats::Client, jetstream::Context), async_nats::ConnectError> {
    let servers: Vec<&str> = servers.split(',').map(str::trim).collect();
    let client = connecting.connect(servers).await?;
    if let Some(denials) = limits {
        denials.foresee(ask_rules(&client, &denials).await);
    }
    let context = jetstream::ContextBuilder::new()
        .timeout(ANSWER_PATIENCE)
        .ack_timeout(ANSWER_PATIENCE)
        .build(client.clone());
    Ok((client, context))
}

/// What the server lets this connection publish, if it says so.
async fn ask_rules(client: &async_nats::Client, denials: &UserDenials) -> Option<PublishRules> {
    let (inbox, server) = (client.new_inbox(), client.server_info().server_id);
    let asking = async {
        let mut answers = client.subscribe(inbox.clone()).await.ok()?;
        client.publish_with_reply(USER_INFO, inbox, Bytes::new()).await.ok()?;
        // Behind a leaf node, the servers answer as well, about the leaf node.
        loop {
            let answer = answers.next().await.filter(|answer| answer.status.is_none())?;
            if let Some(rules) = PublishRules::of_server(&server, &answer.payload) {
                return rules;
            }
        }
    };
    let named = format!("{USER_INFO}\"");
    denials.or(&named, timeout(RULES_PATIENCE, asking)).await.ok()?.ok()?
}

/// Handles of the mailboxes' stream, the bucket's and the object store's. Sends nothing to the server.
fn wires(
    client: async_nats::Client,
    context: jetstream::Context,
    subjects: &TeamSubjects,
    (server, patience, denials): (String, CallPatience, UserDenials),
    connections: &tokio::sync::watch::Receiver<u64>,
) -> impl Future<Output = Option<(Arc<Wire>, [Wire; 2])>> + Send + use<> {
    let names = [subjects.stream(), subjects.bucket_stream(), subjects.files_stream()];
    let stream_state = |stream: &str, pattern: &str| {
        StreamState::new(stream.to_owned(), pattern.trim_end_matches('>'), connections.clone())
    };
    let of_stream = stream_state(&names[0], &subjects.all());
    let reserve = subjects.reserve_all();
    let of_bucket = stream_state(&names[1], &subjects.bucket_all());
    let of_files = stream_state(&names[2], &subjects.all_objects());
    async move {
        let stream = context.get_stream_no_info(&names[0]).await.ok()?;
        let bucket = context.get_stream_no_info(&names[1]).await.ok()?;
        let files = context.get_stream_no_info(&names[2]).await.ok()?;
        let (stream_state, may_be_absent) = (of_stream, false);
        let ops = OperationNames::new();
        let time = ServerTime::default();
        let wire = Wire {
            client,
            context,
            stream,
            stream_state,
            server,
            patience,
            denials,
            time,
            reserve,
            may_be_absent,
            is_narrow: Arc::default(),
            ops,
        };
        let bucket = wire.of(bucket, of_bucket);
        let files = wire.of(files, of_files);
        Some((Arc::new(wire), [bucket, files]))
    }
}

fn connect_options(
    options: &NatsOptions,
    made: tokio::sync::watch::Sender<u64>,
    denials: UserDenials,
) -> Result<ConnectOptions> {
    // The event of the first connection may come after the first call, which would then probe the streams again.
    let is_connected = AtomicBool::new(false);
    let mut connecting = ConnectOptions::new()
        .name("ensemble")
        .connection_timeout(options.patience)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            match event {
                async_nats::Event::Connected => {
                    denials.forget();
                    if is_connected.swap(true, Ordering::Relaxed) {
                        made.send_modify(|count| *count += 1);
                    }
                }
                async_nats::Event::ServerError(error) => denials.record_error(&error.to_string()),
                _ => {}
            }
            std::future::ready(())
        });
    connecting = match options.user() {
        Some((user, Some(word))) => connecting.user_and_password(user.to_owned(), word.to_owned()),
        Some((token, None)) => connecting.token(token.to_owned()),
        None => connecting,
    };
    if let Some(prefix) = &options.inbox_prefix {
        connecting = connecting.custom_inbox_prefix(prefix);
    }
    if let Some(file) = &options.credentials {
        let content = read_chosen_file(file, CREDENTIALS_BYTES_MAX)?
            .ok_or_else(|| Error::io("read", file, std::io::ErrorKind::NotFound))?;
        let text = String::from_utf8_lossy(&content);
        connecting = connecting.credentials(&text).map_err(|e| Error::io("use", file, e))?;
    }
    if let Some(file) = &options.root_certificates {
        check_pem(file, "CERTIFICATE")?;
        connecting = connecting.add_root_certificates(file.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &options.client_certificate {
        check_pem(certificate, "CERTIFICATE")?;
        check_pem(key, "PRIVATE KEY")?;
        connecting = connecting.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(connecting)
}

/// Checks that a file has what it is named for: the libraries pass over one that has nothing.
fn check_pem(file: &Path, what: &str) -> Result<()> {
    let content = read_chosen_file(file, PEM_BYTES_MAX)?
        .ok_or_else(|| Error::io("open", file, std::io::ErrorKind::NotFound))?;
    let text = String::from_utf8_lossy(&content);
    let has_it = text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(what));
    let missing = || std::io::Error::other(format!("it has no `{what}` as PEM"));
    has_it.then_some(()).ok_or_else(|| Error::io("use", file, missing()))
}

/// How long to wait before an attempt to connect.
///
/// `attempt` is 1 for the first of a new connection and the first after a connection was lost: the server is probably
/// up, and a verb that connects to it would only be slower.
fn reconnect_delay(attempt: usize) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_millis(10 << attempt.min(7)).min(RECONNECT_DELAY_MAX),
    }
}

/// More than a subject ever has, as each change removes the versions before it; and no more than a key-value bucket
/// may keep.
const VERSIONS_MAX: i64 = 64;

/// How many versions of a subject the server keeps. One that notes no removal keeps the last one by a limit.
fn versions_max(client: &async_nats::Client) -> i64 {
    if notes_removals(&client.server_info().version) { VERSIONS_MAX } else { 1 }
}

/// Configuration of the mailboxes' stream: on disk, never discarded by the server on its own.
fn stream_config(subjects: &TeamSubjects, (replicas, versions_max): (usize, i64)) -> Config {
    Config {
        name: subjects.stream(),
        subjects: vec![subjects.all()],
        max_messages_per_subject: versions_max,
        allow_rollup: true,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: replicas,
        allow_direct: true,
        ..Config::default()
    }
}

/// Configuration as of `nats kv add`.
fn bucket_config(subjects: &TeamSubjects, size: (usize, i64)) -> Config {
    Config {
        name: subjects.bucket_stream(),
        subjects: vec![subjects.bucket_all()],
        deny_delete: true,
        ..stream_config(subjects, size)
    }
}

/// Configuration as of `nats object add`: all chunks of an upload are in one subject.
fn files_config(subjects: &TeamSubjects, size: (usize, i64)) -> Config {
    Config {
        name: subjects.files_stream(),
        subjects: vec![subjects.all_uploads(), subjects.all_objects()],
        max_messages_per_subject: -1,
        ..stream_config(subjects, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_repeated_attempts_to_connect_are_delayed() {
        let delays =
            [0, 1, 2, 3, 6, 7, usize::MAX].map(|attempt| reconnect_delay(attempt).as_millis());
        assert_eq!(delays, [0, 0, 40, 80, 640, 1000, 1000]);
    }
}
