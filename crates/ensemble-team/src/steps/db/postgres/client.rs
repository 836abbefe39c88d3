//! One connection: how it begins, and statements with their rows. The calling thread drives the crate's futures,
//! and the task of the connection beside them.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Connection, Statement};

use super::super::{BindValue, DbRow as _, RowCell};
use super::error::PgError;
use super::options::PostgresOptions;
use super::row::PgRow;
use super::tls;

/// How much later than the server itself a client abandons a statement.
const GRACE: Duration = Duration::from_secs(2);
const FAREWELL: Duration = Duration::from_millis(200);

pub(super) struct PostgresClient {
    runtime: Runtime,
    /// `None` only during the drop.
    client: Option<tokio_postgres::Client>,
    connection: JoinHandle<()>,
    heard: Arc<PostgresNews>,
    patience: Duration,
    prepared: HashMap<String, Statement>,
    pub(super) listens: bool,
    pub(super) is_in_transaction: bool,
    on_statement: Option<fn(&str)>,
}

#[derive(Default)]
struct PostgresNews {
    /// The server's process for this connection, whose own notifications are not news.
    process: AtomicI32,
    notified: AtomicI64,
    ended: AtomicBool,
    changed: Notify,
}

impl PostgresClient {
    pub(super) fn connect(
        options: &PostgresOptions,
        on_statement: Option<fn(&str)>,
    ) -> Result<Self, PgError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(PgError::away)?;
        let (patience, heard) = (options.patience + GRACE, Arc::new(PostgresNews::default()));
        let (client, connection) = drive(&runtime, patience, begin(options, Arc::clone(&heard)))?;
        let mut client = Self {
            runtime,
            client: Some(client),
            connection,
            heard,
            patience,
            prepared: HashMap::new(),
            listens: false,
            is_in_transaction: false,
            on_statement,
        };
        let asked = client.query("SELECT pg_backend_pid()", &[])?;
        if let Some(Ok(RowCell::Integer(process))) = asked.first().map(|row| row.cell(0)) {
            client.heard.process.store(process as i32, Ordering::Relaxed);
        }
        Ok(client)
    }

    /// Number of notifications from other connections so far.
    pub(super) fn notified(&self) -> i64 {
        self.heard.notified.load(Ordering::Relaxed)
    }

    /// Runs statements without values and without rows.
    pub(super) fn batch(&mut self, statements: &str) -> Result<(), PgError> {
        self.report_statement(statements);
        self.run(|client| async move { client.batch_execute(statements).await })
    }

    pub(super) fn query(
        &mut self,
        statement: &str,
        values: &[BindValue<'_>],
    ) -> Result<Vec<PgRow>, PgError> {
        self.report_statement(statement);
        let prepared = match self.prepared.get(statement) {
            Some(prepared) => prepared.clone(),
            None => {
                let (text, types) = (statement.replace('?', "$"), types(values));
                let prepared =
                    self.run(|client| async move { client.prepare_typed(&text, &types).await })?;
                self.prepared.insert(statement.to_owned(), prepared.clone());
                prepared
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let rows = self.run(|client| async move { client.query(&prepared, &values).await })?;
        Ok(rows.into_iter().map(PgRow).collect())
    }

    /// Waits for a change by another connection, for at most `patience`. Returns whether there was one.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<bool, PgError> {
        let (heard, before) = (Arc::clone(&self.heard), self.notified());
        let news = || heard.notified.load(Ordering::Relaxed) != before;
        let ended = || heard.ended.load(Ordering::Relaxed);
        let waiting = async {
            while !news() && !ended() {
                heard.changed.notified().await;
            }
            Ok(())
        };
        // A timeout only means that there was no change.
        let _ = drive(&self.runtime, patience, waiting);
        match news() || !ended() {
            true => Ok(news()),
            false => Err(gone()),
        }
    }

    fn run<'c, T: Send, F>(
        &'c self,
        ask: impl FnOnce(&'c tokio_postgres::Client) -> F,
    ) -> Result<T, PgError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>> + Send,
    {
        let asked = ask(self.client.as_ref().ok_or_else(gone)?);
        drive(&self.runtime, self.patience, async { asked.await.map_err(PgError::of) })
    }

    fn report_statement(&self, statement: &str) {
        if let Some(told) = self.on_statement {
            told(statement);
        }
    }
}

impl Drop for PostgresClient {
    fn drop(&mut self) {
        // The task says goodbye then; otherwise the server logs a lost connection.
        self.client = None;
        let connection = &mut self.connection;
        if !connection.is_finished() {
            let ended = async { connection.await.map_err(PgError::away) };
            let _ = drive(&self.runtime, FAREWELL, ended);
        }
    }
}

/// Connects, and has the connection served by a task.
async fn begin(
    options: &PostgresOptions,
    heard: Arc<PostgresNews>,
) -> Result<(tokio_postgres::Client, JoinHandle<()>), PgError> {
    let (mut config, password) = (options.for_connection(), options.password());
    if let Ok(password) = &password {
        config.password(password);
    }
    match config.connect(tls::connector(options)?).await {
        Ok((client, connection)) => Ok((client, tokio::spawn(serve(connection, heard)))),
        Err(error) => Err(PgError::of_connecting(error, password.err())),
    }
}

/// Passes requests and answers on, and counts the news of others.
async fn serve<S, T>(mut connection: Connection<S, T>, heard: Arc<PostgresNews>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(told) = message
            && told.process_id() != heard.process.load(Ordering::Relaxed)
        {
            heard.notified.fetch_add(1, Ordering::Relaxed);
            heard.changed.notify_one();
        }
    }
    heard.ended.store(true, Ordering::Relaxed);
    heard.changed.notify_one();
}

/// Waits for a future, and for that long. A caller that is itself in a runtime may not drive another one, so a thread
/// does.
fn drive<T: Send>(
    runtime: &Runtime,
    patience: Duration,
    future: impl Future<Output = Result<T, PgError>> + Send,
) -> Result<T, PgError> {
    let no_answer = |_| Err(PgError::Away(format!("no answer for {patience:?}")));
    let timed = async { tokio::time::timeout(patience, future).await.unwrap_or_else(no_answer) };
    if Handle::try_current().is_err() {
        return runtime.block_on(timed);
    }
    let driven = thread::scope(|scope| scope.spawn(|| runtime.block_on(timed)).join());
    driven.unwrap_or_else(|panic| resume_unwind(panic))
}

fn gone() -> PgError {
    PgError::Away("the connection has ended".to_owned())
}

fn types(values: &[BindValue<'_>]) -> Vec<Type> {
    let kind = |value: &BindValue<'_>| match value {
        BindValue::Integer(_) => Type::INT8,
        BindValue::Text(_) => Type::TEXT,
    };
    values.iter().map(kind).collect()
}
